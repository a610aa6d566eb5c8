package main

import (
	resourceapi "k8s.io/api/resource/v1"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/structured"
)

// The allocator knows the devices with shares.
type sharedID = structured.DeviceID

func sharedIDOf(id structured.SharedDeviceID) sharedID {
	return id.GetDeviceID()
}

// The slices in the form in which the allocator takes them. The informer of the plugin converts them in the same way.
func asTaken(slices []*resourceapi.ResourceSlice) []*draapi.ResourceSlice {
	taken := make([]*draapi.ResourceSlice, 0, len(slices))
	for _, slice := range slices {
		converted := &draapi.ResourceSlice{}
		must(draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(slice, converted, nil))
		taken = append(taken, converted)
	}
	return taken
}
