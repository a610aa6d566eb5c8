package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

const (
	unschedulable  = "Unschedulable"
	schedulerError = "SchedulerError"
	gated          = "SchedulingGated"
	held           = "held back" // no condition has this reason: tests/parity/verdict.py
)

type scores map[string]map[string]int64

type way struct {
	Nominated string   `json:"nominated"`
	Evicted   []string `json:"evicted"`
}

// A node, or a reason and a message; scores of plugins for nodes if there was a choice.
type verdict struct {
	Node    string `json:"node,omitempty"`
	Scores  scores `json:"scores,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Ways    []way  `json:"ways,omitempty"`
}

func failed(err error) verdict {
	return verdict{Reason: schedulerError, Message: fwk.AsStatus(err).Message()}
}

// The verdict of the first plugin that keeps the pod out of the queue; nil if none does.
func heldBack(ctx context.Context, fw framework.Framework, pod *v1.Pod) *verdict {
	for _, plugin := range fw.PreEnqueuePlugins() {
		if status := plugin.PreEnqueue(ctx, pod); !status.IsSuccess() {
			reason := held
			if plugin.Name() == names.SchedulingGates {
				reason = gated
			}
			return &verdict{Reason: reason, Message: status.Message()}
		}
	}
	return nil
}

// One attempt, as Scheduler.schedulingAlgorithm makes it. Nothing is assumed or bound; of a preemption the victims are told.
func attempt(ctx context.Context, sched *scheduler.Scheduler, fw framework.Framework, pod *framework.PodInfo, writes *recorder) verdict {
	snapshot := fw.SnapshotSharedLister().(*internalcache.Snapshot)
	if err := sched.Cache.UpdateSnapshot(klog.FromContext(ctx), snapshot); err != nil {
		return failed(err)
	}
	if snapshot.NumNodesInPlacement() == 0 {
		return verdict{Reason: unschedulable, Message: scheduler.ErrNoNodesAvailable.Error()}
	}
	state := framework.NewCycleState()
	queued := &framework.QueuedPodInfo{PodInfo: pod}
	feasible, diagnosis, err := fitting(ctx, sched, fw, state, queued)
	switch {
	case err != nil:
		return failed(err)
	case len(feasible) == 0:
		fit := &framework.FitError{Pod: pod.Pod, NumAllNodes: snapshot.NumNodesInPlacement(), Diagnosis: diagnosis}
		return refused(ctx, fw, state, fit, writes)
	case len(feasible) == 1:
		return verdict{Node: feasible[0].Node().Name}
	}
	scored, err := prioritized(ctx, fw, state, pod.Pod, feasible)
	if err != nil {
		return failed(err)
	}
	return chosen(scored)
}

// The first of the best: which one upstream takes is chance, and whoever compares knows it.
func chosen(scored []fwk.NodePluginScores) verdict {
	best, said := scored[0], scores{}
	for _, node := range scored {
		if node.TotalScore > best.TotalScore {
			best = node
		}
		for _, score := range node.Scores {
			if said[score.Name] == nil {
				said[score.Name] = map[string]int64{}
			}
			said[score.Name][node.Name] = score.Score
		}
	}
	return verdict{Node: best.Name, Scores: said}
}

func refused(ctx context.Context, fw framework.Framework, state fwk.CycleState, fit *framework.FitError, writes *recorder) verdict {
	waits := way{Evicted: []string{}}
	if fw.HasPostFilterPlugins() {
		result, status := fw.RunPostFilterPlugins(ctx, state, fit.Pod, fit.Diagnosis.NodeToStatus)
		fit.Diagnosis.PostFilterMsg = status.Message()
		waits = way{Nominated: fit.Pod.Status.NominatedNodeName, Evicted: writes.evictedPods()}
		if result != nil && result.NominatingInfo != nil && result.NominatingMode == fwk.ModeOverride {
			waits.Nominated = result.NominatedNodeName
		}
	}
	return verdict{Reason: unschedulable, Message: fit.Error(), Ways: []way{waits}}
}
