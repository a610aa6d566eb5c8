// The oracle runs kube-scheduler's own code on clusters that it is told of, without an API server.
//
// A line of standard input is a cluster, the configuration of a scheduler and pods to try on it; a line of standard output
// is what becomes of each. tests/parity/oracle/process.py is the other end, and says what the words mean.
//
// These files are no module of their own: tests/e2e/controlplane/build.py compiles them in the one that pins Kubernetes.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"io"
	"os"

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

type answer struct {
	Said  map[string]verdict `json:"said,omitempty"`
	Error string             `json:"error,omitempty"`
}

func main() {
	klog.InitFlags(nil)
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := utilfeature.DefaultMutableFeatureGate.Set(gates); err != nil {
		panic(err)
	}
	lines := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		if err := out.Encode(answered(line)); err != nil {
			panic(err)
		}
	}
}

func answered(line []byte) answer {
	var given question
	if err := json.Unmarshal(line, &given); err != nil {
		return answer{Error: err.Error()}
	}
	said, err := ask(&given)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Said: said}
}
