package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
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

// Since it was asked last.
func (r *recorder) evictedPods() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := append([]string{}, r.evicted...)
	slices.Sort(names)
	r.evicted = nil
	return names
}

// What becomes of each asked pod.
func ask(given *question) map[string]verdict {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	writes := &recorder{}
	client, err := clientset.NewForConfig(&rest.Config{Host: "oracle.invalid", Transport: writes, QPS: -1})
	must(err)
	factory := informers.NewSharedInformerFactory(client, 0)
	sched := newScheduler(ctx, given.Config, client, factory)
	for _, raw := range given.Objects {
		put(ctx, sched, factory, raw)
	}
	said := map[string]verdict{}
	pods := factory.Core().V1().Pods().Informer().GetIndexer()
	for name, pod := range given.Asked {
		fw := sched.Profiles[pod.Spec.SchedulerName]
		if fw == nil {
			log.Fatalf("%s: no profile %s", name, pod.Spec.SchedulerName)
		}
		if no := heldBack(ctx, fw, pod); no != nil {
			said[name] = *no
			continue
		}
		info, err := framework.NewPodInfo(pod)
		must(err)
		must(pods.Add(pod)) // preemption looks it up
		said[name] = attempt(ctx, sched, fw, info, writes)
		must(pods.Delete(pod))
	}
	return said
}

// Never run: neither its informers nor its queue are started, and its events are told to nobody.
func newScheduler(ctx context.Context, raw []byte, client clientset.Interface, factory informers.SharedInformerFactory) *scheduler.Scheduler {
	read, _, err := scheme.Codecs.UniversalDecoder(config.SchemeGroupVersion).Decode(raw, nil, nil)
	must(err)
	configured := read.(*config.KubeSchedulerConfiguration)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	context.AfterFunc(ctx, broadcaster.Shutdown)
	recorders := func(name string) events.EventRecorderLogger {
		return broadcaster.NewRecorder(clientscheme.Scheme, name)
	}
	sched, err := scheduler.New(ctx, client, factory, nil, recorders,
		scheduler.WithProfiles(configured.Profiles...),
		scheduler.WithParallelism(configured.Parallelism),
		scheduler.WithComponentConfigVersion(configured.APIVersion))
	must(err)
	return sched
}

// As the event handlers would: into what plugins list, and nodes and pods where the scheduler keeps them.
func put(ctx context.Context, sched *scheduler.Scheduler, factory informers.SharedInformerFactory, raw json.RawMessage) {
	object, kind, err := clientscheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	must(err)
	resource, _ := meta.UnsafeGuessKindToResource(*kind)
	listed, err := factory.ForResource(resource)
	must(err)
	must(listed.Informer().GetIndexer().Add(object))
	logger := klog.FromContext(ctx)
	switch object := object.(type) {
	case *v1.Node:
		sched.Cache.AddNode(logger, object)
	case *v1.Pod:
		if object.Spec.NodeName != "" {
			must(sched.Cache.AddPod(logger, object))
			return
		}
		info, err := framework.NewPodInfo(object)
		must(err)
		nominating := &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: object.Status.NominatedNodeName}
		sched.SchedulingQueue.Add(ctx, object)
		sched.SchedulingQueue.AddNominatedPod(logger, info, nominating)
	}
}
