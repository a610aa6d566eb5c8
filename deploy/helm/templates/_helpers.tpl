{{- define "kubestow.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /*
The release's name, with the chart's unless it is in it. Some objects get an ending, so it is kept short; that of a
Service has no dots, that of a release may.
*/ -}}
{{- define "kubestow.fullname" -}}
{{- $name := include "kubestow.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | replace "." "-" | trunc 48 | trimSuffix "-" -}}
{{- end -}}

{{- define "kubestow.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kubestow.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* Of an object: (list . more). Selectors and helm go by those of ours, so these win; then more, then commonLabels. */ -}}
{{- define "kubestow.labels" -}}
{{- $root := first . -}}
{{- $more := concat (rest .) (list dict) | first | default dict -}}
{{- $own := include "kubestow.selectorLabels" $root | fromYaml -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $_ := set $own "app.kubernetes.io/component" "scheduler" -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- merge $own $more ($root.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{- /* Of the scheduler's pods. No version of the chart: one that changes nothing for the pods restarts none. */ -}}
{{- define "kubestow.podLabels" -}}
{{- $own := include "kubestow.selectorLabels" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/component" "scheduler" -}}
{{- merge $own (.Values.podLabels | default dict) (.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{- define "kubestow.serviceAccountName" -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name: is required where none is created; `default` would share its permissions with all pods of the namespace" -}}
{{- end -}}
{{- .Values.serviceAccount.name | default (include "kubestow.fullname" .) -}}
{{- end -}}

{{- define "kubestow.image" -}}
{{- with .Values.image -}}
{{- required "image.repository: is required, because a chart from a clone names no image. Build one with `make image IMAGE=registry.example.com/kubestow:0.1.0`, push it, and set image.repository and image.tag" .repository -}}
{{- if .digest -}}@{{ .digest }}{{- else -}}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The Secret of the serving certificate; empty: each replica creates a certificate. */ -}}
{{- define "kubestow.tlsSecret" -}}
{{- with .Values.serving.tls -}}
{{- .secretName | default (ternary (printf "%s-tls" (include "kubestow.fullname" $)) "" .certManager.enabled) -}}
{{- end -}}
{{- end -}}

{{- define "kubestow.leaseNamespace" -}}
{{- .Values.leaderElection.resourceNamespace | default .Release.Namespace -}}
{{- end -}}

{{- define "kubestow.leaseName" -}}
{{- .Values.leaderElection.resourceName | default (include "kubestow.fullname" .) -}}
{{- end -}}

{{- /* The scheduler name of the first profile, for the notes, the test and the admission policy. */ -}}
{{- define "kubestow.schedulerName" -}}
{{- $profile := .Values.config.profiles | default list | first | default dict -}}
{{- $profile.schedulerName | default "kubestow" -}}
{{- end -}}

{{- /* The file that the daemon reads. */ -}}
{{- define "kubestow.config" -}}
{{- if hasKey .Values.config "leaderElection" -}}
{{- fail "config.leaderElection: use the values' block leaderElection instead: the permissions follow from it" -}}
{{- end -}}
{{- $election := dict "leaderElect" .Values.leaderElection.enabled -}}
{{- if .Values.leaderElection.enabled -}}
{{- $_ := set $election "resourceLock" "leases" -}}
{{- $_ := set $election "resourceName" (include "kubestow.leaseName" .) -}}
{{- $_ := set $election "resourceNamespace" (include "kubestow.leaseNamespace" .) -}}
{{- range $key := list "leaseDuration" "renewDeadline" "retryPeriod" -}}
{{- $_ := set $election $key (index $.Values.leaderElection $key) -}}
{{- end -}}
{{- end -}}
{{- $head := dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration" -}}
{{- merge (dict "leaderElection" $election) .Values.config $head | toYaml -}}
{{- end -}}

{{- define "kubestow.gracePeriodSeconds" -}}
{{- $drain := int .Values.drainTimeoutSeconds -}}
{{- $grace := int (.Values.terminationGracePeriodSeconds | default (add $drain 30)) -}}
{{- if le $grace $drain -}}
{{- fail (printf "terminationGracePeriodSeconds: must be greater than drainTimeoutSeconds (%d), got %d" $drain $grace) -}}
{{- end -}}
{{- $grace -}}
{{- end -}}

{{- /* Flags that the chart sets from values are refused: probes, permissions and the time to drain have to agree with them. */ -}}
{{- define "kubestow.extraArgs" -}}
{{- $values := dict "config" "config" "secure-port" "serving.port" "drain-timeout" "drainTimeoutSeconds" -}}
{{- $_ := merge $values (dict "feature-gates" "featureGates" "scheduler-profiles" "schedulerProfiles.enabled") -}}
{{- $_ := merge $values (dict "what-if-objects" "whatIfObjects.enabled") -}}
{{- $_ := merge $values (dict "csi-storage-capacity-api-version" "csiStorageCapacityApiVersion") -}}
{{- $_ := merge $values (dict "ui" "ui.enabled") -}}
{{- $_ := merge $values (dict "v" "logging.verbosity" "logging-format" "logging.format") -}}
{{- $_ := merge $values (dict "authentication-skip-lookup" "serving.authenticationSkipLookup") -}}
{{- $_ := merge $values (dict "tls-cert-file" "serving.tls.secretName" "tls-private-key-file" "serving.tls.secretName") -}}
{{- if .Values.ui.enabled -}}
{{- $_ := merge $values (dict "plain-port" "ui.port") -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- $flag := regexFind "^--?[a-z-]+" . | trimPrefix "-" | trimPrefix "-" -}}
{{- $value := ternary "leaderElection" (get $values $flag) (hasPrefix "leader-elect" $flag) -}}
{{- if $value -}}
{{- fail (printf "extraArgs: --%s is %s in the values" $flag $value) -}}
{{- end -}}
{{- end -}}
{{- .Values.extraArgs | toYaml -}}
{{- end -}}

{{- define "kubestow.featureGates" -}}
{{- $gates := list -}}
{{- range $name, $isOn := .Values.featureGates -}}
{{- $gates = append $gates (printf "%s=%t" $name $isOn) -}}
{{- end -}}
{{- join "," $gates -}}
{{- end -}}
