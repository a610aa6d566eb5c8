#!/usr/bin/env bash
# kube-scheduler 1.37.2 evicts two pods for a group that fits in the place of one of them.
#
# With the feature gate GenericWorkload (beta, off by default) a PodGroup that does not fit preempts as a whole: all pods of lower
# priority leave a copy of the cluster, the group is placed there once, and each pod comes back if the group still fits on its nodes.
# Here two nodes of 4 CPUs have one low pod of 3 CPUs each, and the group has two pods of 2 CPUs, which fit on one node together. In
# the empty copy the two are spread over both nodes, so neither low pod can come back. A kube-scheduler 1.38.0-beta.0 on a real
# control plane evicts one; not all of its modules are served, so this script has 1.37.2 alone.
#
# Installs: Go modules k8s.io/kubernetes v1.37.2 and what it requires. Needs Go. Output that was seen:
#   2 pods evicted
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat > main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

func pod(name, cpu string, priority int32, node string) *v1.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: v1.PodSpec{
			SchedulerName: v1.DefaultSchedulerName, NodeName: node, Priority: &priority,
			Containers: []v1.Container{{Name: "c", Image: "i", Resources: v1.ResourceRequirements{Requests: requests}}},
		},
	}
	if node == "" {
		group := "g"
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
	}
	return p
}

func main() {
	if err := utilfeature.DefaultMutableFeatureGate.Set("GenericWorkload=true"); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client := fake.NewClientset()
	pods := client.CoreV1().Pods("default")
	check := func(_ any, err error) {
		if err != nil {
			panic(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		allocatable := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourcePods: resource.MustParse("10")}
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Allocatable: allocatable, Capacity: allocatable}}
		check(client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}))
	}
	check(pods.Create(ctx, pod("x", "3", 2, "a"), metav1.CreateOptions{}))
	check(pods.Create(ctx, pod("y", "3", 5, "b"), metav1.CreateOptions{}))
	high := int32(10)
	group := &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: "default", UID: "g"},
		Spec: schedulingv1beta1.PodGroupSpec{
			Priority:         &high,
			SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}},
		},
	}
	check(client.SchedulingV1beta1().PodGroups("default").Create(ctx, group, metav1.CreateOptions{}))
	check(pods.Create(ctx, pod("p1", "2", high, ""), metav1.CreateOptions{}))
	check(pods.Create(ctx, pod("p2", "2", high, ""), metav1.CreateOptions{}))

	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	informers := scheduler.NewInformerFactory(client, 0, nil)
	sched, err := scheduler.New(ctx, client, informers, nil, profile.NewRecorderFactory(broadcaster))
	if err != nil {
		panic(err)
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		panic(err)
	}
	go sched.Run(ctx)

	gone, since := 0, time.Now()
	for ctx.Err() == nil && (gone == 0 || time.Since(since) < 5*time.Second) {
		time.Sleep(100 * time.Millisecond)
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			panic(err)
		}
		if now := 4 - len(list.Items); now != gone {
			gone, since = now, time.Now()
		}
	}
	fmt.Printf("%d pods evicted\n", gone)
}
GO
staging="api apiextensions-apiserver apimachinery apiserver client-go cloud-provider cluster-bootstrap component-base component-helpers \
  controller-manager cri-api cri-client csi-translation-lib dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator \
  kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission streaming"
printf 'module finding\n\ngo 1.26.0\n' > go.mod
for name in $staging; do
  go mod edit -replace "k8s.io/$name=k8s.io/$name@v0.37.2"
done
go mod edit -require k8s.io/kubernetes@v1.37.2
go mod tidy -e >/dev/null 2>&1
go build -o finding .

answer=$(./finding 2>/dev/null)
echo "$answer"
[ "$answer" = "2 pods evicted" ]
