package main

import (
	"context"
	"time"
	_ "unsafe" // for go:linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// SchedulePod would do, but tells no scores: so its two halves are called, which are nobody's to call from outside. The
// linker lets it pass with -checklinkname=0.

//go:linkname findNodesThatFitPod k8s.io/kubernetes/pkg/scheduler.(*Scheduler).findNodesThatFitPod
func findNodesThatFitPod(sched *scheduler.Scheduler, ctx context.Context, fw framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo) ([]fwk.NodeInfo, framework.Diagnosis, string, error)

//go:linkname prioritizeNodes k8s.io/kubernetes/pkg/scheduler.prioritizeNodes
func prioritizeNodes(ctx context.Context, extenders []fwk.Extender, fw framework.Framework, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, error)

const (
	unschedulable  = "Unschedulable"
	schedulerError = "SchedulerError"
)

// A verdict has a node, or a reason and a message; scores (plugin, node) if there was a choice.
type verdict struct {
	Node      string                      `json:"node,omitempty"`
	Scores    map[string]map[string]int64 `json:"scores,omitempty"`
	Reason    string                      `json:"reason,omitempty"`
	Message   string                      `json:"message,omitempty"`
	Nominated string                      `json:"nominated,omitempty"`
	Evicted   []string                    `json:"evicted,omitempty"`
}

func failed(err error) verdict {
	return verdict{Reason: schedulerError, Message: fwk.AsStatus(err).Message()}
}

// One attempt, as Scheduler.schedulingAlgorithm makes it. Nothing is assumed or bound; of a preemption the victims are told.
func attempt(ctx context.Context, sched *scheduler.Scheduler, fw framework.Framework, pod *framework.PodInfo) verdict {
	snapshot := fw.SnapshotSharedLister().(*internalcache.Snapshot)
	if err := sched.Cache.UpdateSnapshot(klog.FromContext(ctx), snapshot); err != nil {
		return failed(err)
	}
	if snapshot.NumNodesInPlacement() == 0 {
		return verdict{Reason: unschedulable, Message: scheduler.ErrNoNodesAvailable.Error()}
	}
	state := framework.NewCycleState()
	queued := &framework.QueuedPodInfo{PodInfo: pod, Timestamp: time.Now()}
	feasible, diagnosis, _, err := findNodesThatFitPod(sched, ctx, fw, state, queued)
	switch {
	case err != nil:
		return failed(err)
	case len(feasible) == 0:
		return refused(ctx, fw, state, &framework.FitError{Pod: pod.Pod, NumAllNodes: snapshot.NumNodesInPlacement(), Diagnosis: diagnosis})
	case len(feasible) == 1:
		return verdict{Node: feasible[0].Node().Name}
	}
	scored, err := prioritizeNodes(ctx, sched.Extenders, fw, state, pod.Pod, feasible)
	if err != nil {
		return failed(err)
	}
	return chosen(scored)
}

// The first of the best: which one upstream takes is chance, and whoever compares knows it.
func chosen(scored []fwk.NodePluginScores) verdict {
	said := verdict{Scores: map[string]map[string]int64{}}
	best := scored[0]
	for _, node := range scored {
		if node.TotalScore > best.TotalScore {
			best = node
		}
		for _, score := range node.Scores {
			if said.Scores[score.Name] == nil {
				said.Scores[score.Name] = map[string]int64{}
			}
			said.Scores[score.Name][node.Name] = score.Score
		}
	}
	said.Node = best.Name
	return said
}

func refused(ctx context.Context, fw framework.Framework, state fwk.CycleState, fit *framework.FitError) verdict {
	said := verdict{Reason: unschedulable}
	if fw.HasPostFilterPlugins() {
		result, status := fw.RunPostFilterPlugins(ctx, state, fit.Pod, fit.Diagnosis.NodeToStatus)
		fit.Diagnosis.PostFilterMsg = status.Message()
		said.Nominated = fit.Pod.Status.NominatedNodeName
		if result != nil && result.NominatingInfo != nil && result.NominatingMode == fwk.ModeOverride {
			said.Nominated = result.NominatedNodeName
		}
	}
	said.Message = fit.Error()
	return said
}
