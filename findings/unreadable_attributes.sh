#!/usr/bin/env bash
# The error for a device with several unreadable attributes names another one from attempt to attempt.
#
# A device may have list attributes that an API server stored while the gate DRAListTypeAttributes was on. A scheduler of
# 1.36 with the gate off cannot read them, and each selector on the device is an error. The library walks a Go map and
# stops at the first such attribute. So the message of a waiting pod changes without a cause: tools that compare conditions
# or count events by text see a new one each time.
#
# Installs: Go module k8s.io/dynamic-resource-allocation v0.36.3 and what it requires. Needs Go. Output that was seen:
#   attribute drv.example.com/a: unsupported attribute value
#   attribute drv.example.com/b: unsupported attribute value
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat > go.mod <<'MOD'
module finding

go 1.26.0

require (
	k8s.io/api v0.36.3
	k8s.io/dynamic-resource-allocation v0.36.3
)
MOD
cat > main.go <<'GO'
package main

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

func main() {
	list := resourceapi.DeviceAttribute{IntValues: []int64{1, 2}}
	device := cel.Device{
		Driver: "drv.example.com",
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"drv.example.com/a": list,
			"drv.example.com/b": list,
		},
	}
	compiled := cel.GetCompiler(cel.Features{}).CompileCELExpression("device.driver == 'drv.example.com'", cel.Options{})
	for range 200 {
		_, _, err := compiled.DeviceMatches(context.Background(), device)
		fmt.Println(err)
	}
}
GO
go mod tidy >/dev/null 2>&1
nice go run . | sort -u | tee seen
test "$(wc -l < seen)" = 2
