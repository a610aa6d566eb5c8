// The port forwarding of a kubelet, by the code that container runtimes use: kubelet ADDRESS CERTIFICATE PORT.
// CERTIFICATE is a PEM file with key and certificate. Whatever port of a pod is named, PORT of this machine is connected.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

type forwarder struct{ address string }

func (f forwarder) PortForward(ctx context.Context, name, uid string, port int32, stream io.ReadWriteCloser) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.address)
	if err != nil {
		return fmt.Errorf("failed to connect: %w", err)
	}
	defer connection.Close()
	ended := make(chan struct{}, 2)
	copied := func(to io.Writer, from io.Reader) {
		io.Copy(to, from)
		ended <- struct{}{}
	}
	go copied(connection, stream)
	go copied(stream, connection)
	<-ended
	return nil
}

func (f forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	log.Printf("%s %s", r.Method, r.URL)
	parts := strings.Split(r.URL.Path, "/")
	port, err := strconv.ParseInt(r.URL.Query().Get("port"), 10, 32)
	if len(parts) != 4 || parts[1] != "portForward" || err != nil {
		http.Error(w, "expected /portForward/NAMESPACE/POD?port=PORT", http.StatusBadRequest)
		return
	}
	options, err := portforward.BuildV4Options([]int32{int32(port)})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, f, parts[3], "", options, time.Hour, time.Minute, portforward.SupportedProtocols)
}

func main() {
	address, certificate, port := os.Args[1], os.Args[2], os.Args[3]
	log.Fatal(http.ListenAndServeTLS(address, certificate, certificate, forwarder{net.JoinHostPort("127.0.0.1", port)}))
}
