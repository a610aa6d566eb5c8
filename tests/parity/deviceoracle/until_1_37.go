package main

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
)

// The allocator knows each share.
type sharedID = structured.SharedDeviceID

func sharedIDOf(id structured.SharedDeviceID) sharedID {
	return id
}

// The slices in the form in which the allocator takes them.
func asTaken(slices []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	return slices
}
