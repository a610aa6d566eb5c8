package main

import (
	"context"
	"errors"
	"log"
	"reflect"
	"strings"
	"sync/atomic"
	_ "unsafe" // for go:linkname

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	_ "k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources" // has foreachAllocatedDevice
)

// The plugin reads allocated claims with this function, which it does not export. The linker permits the call with
// -checklinkname=0.
//
//go:linkname foreachAllocatedDevice k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources.foreachAllocatedDevice
func foreachAllocatedDevice(claim *resourceapi.ResourceClaim, dedicated func(structured.DeviceID), consumable bool,
	shared func(structured.SharedDeviceID), consumed func(structured.DeviceConsumedCapacity))

var allVariants = []string{"stable", "incubating", "experimental"}

type question struct {
	// Names of feature gates that are on.
	Gates   []string
	Nodes   []*v1.Node
	Slices  []*resourceapi.ResourceSlice
	Classes []*resourceapi.DeviceClass
	// All claims that are there. Those with an allocation hold devices.
	Held []*resourceapi.ResourceClaim
	// The claims of one pod that are to be allocated.
	Claims []*resourceapi.ResourceClaim
	// The variants of the allocator that may answer; all of them if none is named.
	Variants []string
	// The number of steps after which the search of one node is cancelled, instead of a time.
	Steps int64
}

type answer struct {
	Allocations []resourceapi.AllocationResult `json:"allocations,omitempty"`
	IsAllocated bool                           `json:"isAllocated"`
	Error       string                         `json:"error,omitempty"`
	// The error concerns this node only.
	OnNode   bool `json:"onNode,omitempty"`
	TimedOut bool `json:"timedOut,omitempty"`
}

// By node name. Each node gets an allocator of its own: what one keeps for later nodes must not change their answers.
func (q *question) answer() map[string]answer {
	structured.EnableAllocators(allVariants...)
	if len(q.Variants) > 0 {
		structured.EnableAllocators(q.Variants...)
	}
	answers := map[string]answer{}
	for _, node := range q.Nodes {
		answers[node.Name] = q.onNode(node)
	}
	return answers
}

func (q *question) onNode(node *v1.Node) answer {
	features := q.features()
	ctx := &limited{Context: context.Background()}
	ctx.left.Store(q.Steps)
	allocator, err := structured.NewAllocator(ctx, features, q.state(), q.classes(), asTaken(q.Slices), celCache(q.celFeatures()))
	must(err)
	found, err := allocator.Allocate(ctx, node, q.Claims)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return answer{TimedOut: true}
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return answer{Error: err.Error(), OnNode: true}
	case err != nil:
		return answer{Error: err.Error()}
	}
	return answer{Allocations: found, IsAllocated: len(found) == len(q.Claims)}
}

func (q *question) has(gates ...string) bool {
	for _, gate := range gates {
		if !strings.Contains(" "+strings.Join(q.Gates, " ")+" ", " "+gate+" ") {
			return false
		}
	}
	return true
}

// Fields of structured.Features, and the gates that they need, as AllocatorFeatures of the plugin has them. Each field needs an
// entry. No case turns on a gate that is off in every version.
var fields = map[string][]string{
	"AdminAccess":             {"DRAAdminAccess"},
	"CompatibilityGroups":     {"DRADeviceCompatibilityGroups"},
	"ConsumableCapacity":      {"DRAConsumableCapacity"},
	"DerivedAttributes":       {"DRADerivedAttributes"},
	"DeviceBindingAndStatus":  {"DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"},
	"DeviceTaints":            {"DRADeviceTaints"},
	"FractionalCapacityRange": {"DRAFractionalCapacityRange"},
	"ListTypeAttributes":      {"DRAListTypeAttributes"},
	"OptionalNodeOperations":  {"DRAOptionalNodeOperations"},
	"PartitionableDevices":    {"DRAPartitionableDevices"},
	"PrioritizedList":         {"DRAPrioritizedList"},
}

// Each version of Kubernetes has its own fields, so they are set by name.
func (q *question) features() structured.Features {
	var features structured.Features
	found := reflect.ValueOf(&features).Elem()
	for i := range found.NumField() {
		gates, isKnown := fields[found.Type().Field(i).Name]
		if !isKnown {
			log.Fatalf("no gates for structured.Features.%s", found.Type().Field(i).Name)
		}
		found.Field(i).SetBool(q.has(gates...))
	}
	return features
}

func (q *question) celFeatures() cel.Features {
	return cel.Features{
		EnableConsumableCapacity: q.has("DRAConsumableCapacity"),
		EnableListTypeAttributes: q.has("DRAListTypeAttributes"),
	}
}

// As the plugin gathers it from claims.
func (q *question) state() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[sharedID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range q.Held {
		foreachAllocatedDevice(claim,
			func(id structured.DeviceID) { state.AllocatedDevices.Insert(id) },
			q.has("DRAConsumableCapacity"),
			func(id structured.SharedDeviceID) { state.AllocatedSharedDeviceIDs.Insert(sharedIDOf(id)) },
			func(consumed structured.DeviceConsumedCapacity) { state.AggregatedCapacity.Insert(consumed) },
		)
	}
	return state
}

func (q *question) classes() structured.DeviceClassLister {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, class := range q.Classes {
		must(indexer.Add(class))
	}
	return allClasses{resourcelisters.NewDeviceClassLister(indexer)}
}

const expressionsMax = 1000

var celCaches = map[cel.Features]*cel.Cache{}

// Compiled expressions are kept from case to case.
func celCache(features cel.Features) *cel.Cache {
	if celCaches[features] == nil {
		celCaches[features] = cel.NewCache(expressionsMax, features)
	}
	return celCaches[features]
}

// A context that is cancelled after a number of steps: the allocator asks for its error in each step. A limit in time would
// give other answers on a busy machine.
type limited struct {
	context.Context
	left atomic.Int64
}

func (l *limited) Err() error {
	if l.left.Add(-1) < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// The lister of the informers, with the interface that the allocator wants.
type allClasses struct {
	resourcelisters.DeviceClassLister
}

func (a allClasses) List() ([]*resourceapi.DeviceClass, error) {
	return a.DeviceClassLister.List(labels.Everything())
}
