package main

import (
	"context"
	_ "unsafe" // for go:linkname

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// SchedulePod does not return scores. So its two halves are called, which the package does not export. The linker permits it
// with -checklinkname=0.

//go:linkname findNodesThatFitPod k8s.io/kubernetes/pkg/scheduler.(*SchedulingAlgorithm).findNodesThatFitPod
func findNodesThatFitPod(algorithm *scheduler.SchedulingAlgorithm, ctx context.Context, fw framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo) ([]framework.NodeWithRank, *framework.Diagnosis, string, error)

//go:linkname prioritizeNodes k8s.io/kubernetes/pkg/scheduler.prioritizeNodes
func prioritizeNodes(ctx context.Context, fw framework.Framework, state fwk.CycleState, pod *v1.Pod, nodes []framework.NodeWithRank) ([]fwk.NodePluginScores, error)

func fitting(ctx context.Context, sched *scheduler.Scheduler, fw framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo) ([]fwk.NodeInfo, framework.Diagnosis, error) {
	snapshot := fw.SnapshotSharedLister().(*internalcache.Snapshot)
	algorithm, err := scheduler.NewSchedulingAlgorithm(snapshot, sched.Cache)
	must(err)
	ranked, diagnosis, _, err := findNodesThatFitPod(algorithm, ctx, fw, state, pod)
	if err != nil {
		return nil, framework.Diagnosis{}, err
	}
	nodes := make([]fwk.NodeInfo, 0, len(ranked))
	for _, node := range ranked {
		nodes = append(nodes, node.NodeInfo)
	}
	return nodes, *diagnosis, nil
}

// Only pods of groups have nodes of different ranks.
func prioritized(ctx context.Context, fw framework.Framework, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, error) {
	ranked := make([]framework.NodeWithRank, 0, len(nodes))
	for _, node := range nodes {
		ranked = append(ranked, framework.NodeWithRank{NodeInfo: node})
	}
	return prioritizeNodes(ctx, fw, state, pod, ranked)
}
