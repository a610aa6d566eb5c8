package main

import (
	"context"
	_ "unsafe" // for go:linkname

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// SchedulePod does not return scores. So its two halves are called, which the package does not export. The linker permits it
// with -checklinkname=0.

//go:linkname findNodesThatFitPod k8s.io/kubernetes/pkg/scheduler.(*Scheduler).findNodesThatFitPod
func findNodesThatFitPod(sched *scheduler.Scheduler, ctx context.Context, fw framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo) ([]fwk.NodeInfo, framework.Diagnosis, string, error)

//go:linkname prioritizeNodes k8s.io/kubernetes/pkg/scheduler.prioritizeNodes
func prioritizeNodes(ctx context.Context, extenders []fwk.Extender, fw framework.Framework, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, error)

func fitting(ctx context.Context, sched *scheduler.Scheduler, fw framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo) ([]fwk.NodeInfo, framework.Diagnosis, error) {
	nodes, diagnosis, _, err := findNodesThatFitPod(sched, ctx, fw, state, pod)
	return nodes, diagnosis, err
}

func prioritized(ctx context.Context, fw framework.Framework, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, error) {
	return prioritizeNodes(ctx, nil, fw, state, pod, nodes)
}
