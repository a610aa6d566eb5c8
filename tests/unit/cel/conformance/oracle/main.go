// The oracle answers cel-spec's conformance cases with the CEL environment of Kubernetes.
//
// A line of standard input is a case as the files beside it have it: an expression, the types of its variables, and their
// values. The first line of standard output names the modules that answer. Each further line is the answer to one case: the
// error of the compiler, the error of the evaluation, or a value in the form that the cases have.
//
// This file is no module of its own: tests/e2e/controlplane/build.py compiles it in the one that pins Kubernetes.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

type question struct {
	Expression string                     `json:"expr"`
	Types      map[string]json.RawMessage `json:"env"`
	Bindings   map[string]json.RawMessage `json:"bindings"`
}

type answer struct {
	Compile string `json:"compile,omitempty"`
	Error   string `json:"error,omitempty"`
	Value   []any  `json:"value,omitempty"`
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	must(out.Encode(source()))
	environments := environmentsByTypes{}
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked question
		must(json.Unmarshal(line, &asked))
		must(out.Encode(ask(asked, environments)))
	}
}

// The versions come from the binary itself.
func source() string {
	versions := map[string]string{}
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		versions[module.Path] = module.Version
	}
	return fmt.Sprintf("k8s.io/apiserver %s (cel-go %s), environment of stored expressions, with cel.bind",
		versions["k8s.io/apiserver"], versions["github.com/google/cel-go"])
}

// Limits and checks are those of DRA: CompileCELExpression in k8s.io/dynamic-resource-allocation/cel. The result may have any type.
func ask(asked question, environments environmentsByTypes) answer {
	env := environments.of(asked.Types)
	compiled, issues := env.Compile(asked.Expression)
	if issues != nil {
		return answer{Compile: issues.String()}
	}
	program, err := env.Program(compiled,
		cel.CostLimit(resourceapi.CELSelectorExpressionMaxCost),
		cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil { // what does not depend on variables is evaluated here
		return answer{Error: "program instantiation failed: " + err.Error()}
	}
	bindings := map[string]any{}
	for name, written := range asked.Bindings {
		bindings[name] = read(written)
	}
	value, _, err := program.Eval(bindings)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Value: told(value)}
}

// -- types -------------------------------------------------------------------------------------------------------------

type environmentsByTypes map[string]*cel.Env

// As newCompiler in k8s.io/dynamic-resource-allocation/cel makes it, with these variables instead of a device.
func (e environmentsByTypes) of(declared map[string]json.RawMessage) *cel.Env {
	key, err := json.Marshal(declared)
	must(err)
	if made, ok := e[string(key)]; ok {
		return made
	}
	options := []cel.EnvOption{ext.Bindings(ext.BindingsVersion(0))}
	for name, written := range maps.All(declared) {
		options = append(options, cel.Variable(name, typeOf(written)))
	}
	extended, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(
		environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 31), EnvOptions: options})
	must(err)
	made, err := extended.Env(environment.StoredExpressions)
	must(err)
	e[string(key)] = made
	return made
}

// A name, or a list of a name and parameters.
func typeOf(written json.RawMessage) *cel.Type {
	var name string
	if json.Unmarshal(written, &name) == nil {
		simple := map[string]*cel.Type{
			"bool": cel.BoolType, "int": cel.IntType, "uint": cel.UintType, "double": cel.DoubleType, "string": cel.StringType,
			"bytes": cel.BytesType, "null_type": cel.NullType, "dyn": cel.DynType,
		}[name]
		if simple == nil {
			log.Fatalf("type %s: not known", written)
		}
		return simple
	}
	var parts []json.RawMessage
	must(json.Unmarshal(written, &parts))
	switch string(parts[0]) {
	case `"list"`:
		return cel.ListType(typeOf(parts[1]))
	case `"map"`:
		return cel.MapType(typeOf(parts[1]), typeOf(parts[2]))
	}
	log.Fatalf("type %s: not known", written)
	return nil
}

// -- values ------------------------------------------------------------------------------------------------------------

// A kind and what JSON can hold of the value: see convert_conformance.py.
func read(written json.RawMessage) ref.Val {
	var parts []json.RawMessage
	must(json.Unmarshal(written, &parts))
	var kind string
	must(json.Unmarshal(parts[0], &kind))
	switch kind {
	case "null":
		return types.NullValue
	case "bool":
		return types.Bool(content[bool](parts))
	case "int":
		return types.Int(content[int64](parts))
	case "uint":
		return types.Uint(content[uint64](parts))
	case "double":
		number, err := strconv.ParseFloat(content[string](parts), 64)
		must(err)
		return types.Double(number)
	case "string":
		return types.String(content[string](parts))
	case "bytes":
		raw, err := hex.DecodeString(content[string](parts))
		must(err)
		return types.Bytes(raw)
	case "list":
		values := []ref.Val{}
		for _, each := range content[[]json.RawMessage](parts) {
			values = append(values, read(each))
		}
		return types.DefaultTypeAdapter.NativeToValue(values)
	case "map":
		entries := map[ref.Val]ref.Val{}
		for _, each := range content[[][2]json.RawMessage](parts) {
			entries[read(each[0])] = read(each[1])
		}
		return types.DefaultTypeAdapter.NativeToValue(entries)
	}
	log.Fatalf("value %s: not known", written)
	return nil
}

func content[T any](parts []json.RawMessage) T {
	var value T
	must(json.Unmarshal(parts[1], &value))
	return value
}

// The inverse of read, and more kinds. Entries of a map come in no order.
func told(value ref.Val) []any {
	switch value := value.(type) {
	case types.Null:
		return []any{"null"}
	case types.Bool:
		return []any{"bool", bool(value)}
	case types.Int:
		return []any{"int", int64(value)}
	case types.Uint:
		return []any{"uint", uint64(value)}
	case types.Double:
		return []any{"double", strconv.FormatFloat(float64(value), 'g', -1, 64)}
	case types.String:
		return []any{"string", string(value)}
	case types.Bytes:
		return []any{"bytes", hex.EncodeToString(value)}
	case types.Timestamp:
		return []any{"timestamp", value.Unix()*int64(time.Second) + int64(value.Nanosecond())}
	case types.Duration:
		return []any{"duration", int64(value.Duration)}
	case *types.Type:
		return []any{"type", value.TypeName()}
	case traits.Lister:
		values := [][]any{}
		for each := value.Iterator(); each.HasNext() == types.True; {
			values = append(values, told(each.Next()))
		}
		return []any{"list", values}
	case traits.Mapper:
		entries := [][2][]any{}
		for each := value.Iterator(); each.HasNext() == types.True; {
			key := each.Next()
			entries = append(entries, [2][]any{told(key), told(value.Get(key))})
		}
		return []any{"map", entries}
	}
	log.Fatalf("%v of type %s: the cases have no such value", value, value.Type().TypeName())
	return nil
}

// A case that cannot be read is a mistake of the caller, which reads the reason on standard error.
func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
