// Command oracle asks the library of the API server and of kube-scheduler what it reads in a quantity.
//
// Standard input has one question per line, standard output one answer per question.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The text is head, then middle the given number of times, then tail.
type question struct {
	Head   string `json:"head"`
	Middle string `json:"middle,omitempty"`
	Times  int    `json:"times,omitempty"`
	Tail   string `json:"tail,omitempty"`
	Vast   bool   `json:"vast,omitempty"` // too large for upstream to compare
}

type answer struct {
	question
	Error   string `json:"error,omitempty"`
	Text    string `json:"text,omitempty"`
	Value   int64  `json:"value"`
	Milli   int64  `json:"milli"`
	Integer bool   `json:"integer"`
	Order   []int  `json:"order,omitempty"`
}

// In rising order; with the limits of int64 in units and in thousandths.
var yardsticks = []string{
	"-9223372036854775807", "-9223372036854775807m", "-1", "0", "1n", "1", "1Gi",
	"9223372036854775807m", "9223372036854775807", "1e30", "1e90",
}

const longest = 60

func main() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var asked question
		if err := json.Unmarshal(in.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		line, err := json.Marshal(read(asked))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(string(line))
	}
}

func read(asked question) answer {
	found := answer{question: asked}
	quantity, err := resource.ParseQuantity(asked.Head + strings.Repeat(asked.Middle, asked.Times) + asked.Tail)
	if err != nil {
		found.Error = err.Error()
		return found
	}
	found.Value, found.Milli = quantity.Value(), quantity.MilliValue()
	_, found.Integer = quantity.AsInt64()
	if asked.Vast {
		return found
	}
	for _, each := range yardsticks {
		found.Order = append(found.Order, quantity.Cmp(resource.MustParse(each)))
	}
	if text := quantity.String(); len(text) <= longest {
		found.Text = text
	}
	return found
}
