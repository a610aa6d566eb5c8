package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Says yes to whatever the scheduler writes, and remembers whom it evicts.
type recorder struct {
	mu      sync.Mutex
	evicted []string
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	directory, name := path.Split(request.URL.Path)
	if request.Method == http.MethodDelete && path.Base(directory) == "pods" {
		r.mu.Lock()
		r.evicted = append(r.evicted, name)
		r.mu.Unlock()
	}
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(`{"kind":"Pod","apiVersion":"v1"}`)),
		Request:    request,
	}, nil
}

func (r *recorder) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.evicted
	r.evicted = nil
	return taken
}

// What becomes of each asked pod, alone on the cluster.
func ask(given *question) (map[string]verdict, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	written := &recorder{}
	// Nothing is limited, nor told in protobuf: nobody is at the other end.
	client, err := clientset.NewForConfig(&rest.Config{Host: "oracle.invalid", Transport: written, QPS: -1})
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	sched, err := newScheduler(ctx, given.Config, client, factory)
	if err != nil {
		return nil, err
	}
	for _, raw := range given.Objects {
		if err := put(ctx, sched, factory, raw); err != nil {
			return nil, err
		}
	}
	said := map[string]verdict{}
	for name, pod := range given.Asked {
		fw := sched.Profiles[pod.Spec.SchedulerName]
		if fw == nil {
			return nil, fmt.Errorf("%s: no profile %s", name, pod.Spec.SchedulerName)
		}
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return nil, err
		}
		// Preemption looks the pod up.
		pods := factory.Core().V1().Pods().Informer().GetIndexer()
		if err := pods.Add(pod); err != nil {
			return nil, err
		}
		one := attempt(ctx, sched, fw, info)
		one.Evicted = written.taken()
		said[name] = one
		if err := pods.Delete(pod); err != nil {
			return nil, err
		}
	}
	return said, nil
}

// Never run: neither its informers nor its queue are started, and its events are told to nobody.
func newScheduler(ctx context.Context, raw []byte, client clientset.Interface, factory informers.SharedInformerFactory) (*scheduler.Scheduler, error) {
	read, _, err := scheme.Codecs.UniversalDecoder(config.SchemeGroupVersion).Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	configured, ok := read.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("no configuration: %T", read)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	context.AfterFunc(ctx, broadcaster.Shutdown)
	recorders := func(name string) events.EventRecorderLogger {
		return broadcaster.NewRecorder(clientscheme.Scheme, name)
	}
	return scheduler.New(ctx, client, factory, nil, recorders,
		scheduler.WithProfiles(configured.Profiles...),
		scheduler.WithParallelism(configured.Parallelism),
		scheduler.WithComponentConfigVersion(configured.APIVersion))
}

// As the event handlers would: into what plugins list, and nodes and pods where the scheduler keeps them.
func put(ctx context.Context, sched *scheduler.Scheduler, factory informers.SharedInformerFactory, raw json.RawMessage) error {
	object, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return err
	}
	listed, err := indexer(factory, object)
	if err != nil {
		return err
	}
	if err := listed.Add(object); err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	switch object := object.(type) {
	case *v1.Node:
		sched.Cache.AddNode(logger, object)
	case *v1.Pod:
		if object.Spec.NodeName != "" {
			return sched.Cache.AddPod(logger, object)
		}
		info, err := framework.NewPodInfo(object)
		if err != nil {
			return err
		}
		nominating := &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: object.Status.NominatedNodeName}
		sched.SchedulingQueue.Add(ctx, object)
		sched.SchedulingQueue.AddNominatedPod(logger, info, nominating)
	}
	return nil
}

func indexer(factory informers.SharedInformerFactory, object runtime.Object) (cache.Indexer, error) {
	core, apps := factory.Core().V1(), factory.Apps().V1()
	switch object.(type) {
	case *v1.Namespace:
		return core.Namespaces().Informer().GetIndexer(), nil
	case *v1.Node:
		return core.Nodes().Informer().GetIndexer(), nil
	case *v1.Pod:
		return core.Pods().Informer().GetIndexer(), nil
	case *v1.Service:
		return core.Services().Informer().GetIndexer(), nil
	case *v1.ReplicationController:
		return core.ReplicationControllers().Informer().GetIndexer(), nil
	case *appsv1.ReplicaSet:
		return apps.ReplicaSets().Informer().GetIndexer(), nil
	case *appsv1.StatefulSet:
		return apps.StatefulSets().Informer().GetIndexer(), nil
	case *policyv1.PodDisruptionBudget:
		return factory.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer(), nil
	}
	return nil, fmt.Errorf("nobody was told what to do with a %T", object)
}
