// The device oracle runs the allocator of kube-scheduler's DynamicResources plugin on cases that it reads, without an API server.
//
// Each line of standard input is a case as JSON. Each line of standard output has the answer of the allocator for each node of
// the case. tests/parity/deviceoracle/process.py is the other end.
//
// These files are not a module. tests/e2e/controlplane/build.py compiles them in the module that pins Kubernetes.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func main() {
	klog.SetLogger(logr.Discard())
	lines := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var given question
		must(json.Unmarshal(line, &given))
		must(out.Encode(given.answer()))
	}
}

// A case that cannot be read is a mistake of the caller, which finds the reason on standard error.
func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
