// Command oracle asks the compiler that kube-scheduler uses what it thinks of expressions.
//
// Its argument is a file with the test devices, a JSON list of resource.k8s.io/v1 devices, each with a driver beside
// its name. Standard input has one question per line, standard output one answer per question.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

type question struct {
	Expression string   `json:"expression"`
	Consumable bool     `json:"consumable"`
	Lists      bool     `json:"lists"`
	Devices    []string `json:"devices,omitempty"`
}

type outcome struct {
	Device string  `json:"device"`
	Value  *bool   `json:"value,omitempty"`
	Error  string  `json:"error,omitempty"`
	Cost   *uint64 `json:"cost,omitempty"`
}

type answer struct {
	question
	CompileError string    `json:"compileError,omitempty"`
	Type         string    `json:"type,omitempty"`
	Outcomes     []outcome `json:"outcomes,omitempty"`
}

type device struct {
	resourceapi.Device
	Driver string `json:"driver"`
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(devicesPath string) error {
	text, err := os.ReadFile(devicesPath)
	if err != nil {
		return err
	}
	var devices []device
	if err := json.Unmarshal(text, &devices); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		if err := out.Encode(ask(asked, devices)); err != nil {
			return err
		}
	}
	return lines.Err()
}

func ask(asked question, devices []device) answer {
	compiler := dracel.GetCompiler(dracel.Features{
		EnableConsumableCapacity: asked.Consumable,
		EnableListTypeAttributes: asked.Lists,
	})
	compiled := compiler.CompileCELExpression(asked.Expression, dracel.Options{DisableCostEstimation: true})
	if compiled.Error != nil {
		asked.Devices = nil
		return answer{question: asked, CompileError: compiled.Error.Detail}
	}
	result := answer{question: asked, Type: compiled.OutputType.String()}
	for _, each := range devices {
		if !slices.Contains(asked.Devices, each.Name) {
			continue
		}
		input := dracel.Device{
			Driver:                   each.Driver,
			AllowMultipleAllocations: each.AllowMultipleAllocations,
			Attributes:               each.Attributes,
			Capacity:                 each.Capacity,
		}
		got := outcome{Device: each.Name}
		value, details, err := compiled.DeviceMatches(context.Background(), input)
		if details != nil {
			got.Cost = details.ActualCost()
		}
		if err != nil {
			got.Error = err.Error()
		} else {
			got.Value = &value
		}
		result.Outcomes = append(result.Outcomes, got)
	}
	result.Devices = nil
	return result
}
