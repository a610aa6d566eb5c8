// The oracle runs kube-scheduler's own code on clusters that it is told of, without an API server.
//
// A line of standard input is a question: the configuration of a scheduler, a cluster, and pods to try on it, each alone. A line
// of standard output has what becomes of each, as recordings say it. tests/parity/oracle/process.py is at the other end.
//
// Its argument, if there is one, names further feature gates as --feature-gates would: "A=true,B=true".
//
// These files are no module of their own: tests/e2e/controlplane/build.py compiles them in the one that pins Kubernetes.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
)

// Evictions happen before the attempt is over, so that it can tell of them. Batching would reuse the nodes that were found
// for the pod before, which is not there any more.
const gates = "SchedulerAsyncPreemption=false,OpportunisticBatching=false"

type question struct {
	Config  json.RawMessage
	Objects []json.RawMessage
	Asked   map[string]*v1.Pod
}

func main() {
	klog.SetLogger(logr.Discard())
	must(utilfeature.DefaultMutableFeatureGate.Set(strings.Join(append(os.Args[1:], gates), ",")))
	lines := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var given question
		must(json.Unmarshal(line, &given))
		must(out.Encode(ask(&given)))
	}
}

// A question that cannot be answered is a mistake of whoever asks, who is told on standard error.
func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
