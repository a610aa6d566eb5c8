// Command provisionable reads pods as lines of JSON and prints the names of those for which Karpenter would add a node.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var pod corev1.Pod
		if err := json.Unmarshal(lines.Bytes(), &pod); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if podutils.IsProvisionable(&pod) {
			fmt.Println(pod.Name)
		}
	}
}
