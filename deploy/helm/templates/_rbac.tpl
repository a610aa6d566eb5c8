{{- /*
Permissions that a configuration needs. The tables have the extension points of the plugins and the kinds that they read; the
tests compare them with the code, and the resulting rules with what the daemon needs.
*/ -}}

{{- define "kubestow.pluginTable" -}}
VolumeRestrictions:
  points: [preFilter, filter]
  reads:
    "": [persistentvolumeclaims]
NodeVolumeLimits:
  points: [preFilter, filter]
  reads:
    "": [persistentvolumeclaims, persistentvolumes]
    storage.k8s.io: [storageclasses, csinodes, csidrivers, volumeattachments]
VolumeBinding:
  points: [preFilter, filter, preScore, score, reserve, preBind]
  reads:
    "": [persistentvolumeclaims, persistentvolumes]
    storage.k8s.io: [storageclasses, csinodes, csidrivers, csistoragecapacities]
VolumeZone:
  points: [preFilter, filter]
  reads:
    "": [persistentvolumeclaims, persistentvolumes]
    storage.k8s.io: [storageclasses]
PodTopologySpread:
  points: [preFilter, filter, preScore, score]
  reads: # unless it has no default constraints
    "": [services, replicationcontrollers]
    apps: [replicasets, statefulsets]
InterPodAffinity:
  points: [preFilter, filter, preScore, score]
  reads:
    "": [namespaces]
DynamicResources:
  points: [preEnqueue, preFilter, filter, postFilter, score, reserve, preBind]
  reads:
    resource.k8s.io: [resourceclaims, resourceslices, deviceclasses]
DefaultPreemption:
  points: [preEnqueue, postFilter]
  reads:
    policy: [poddisruptionbudgets]
GangScheduling:
  points: [preEnqueue]
  reads: # unless the profile has no groups
    scheduling.k8s.io: [podgroups]
    scheduling.x-k8s.io: [podgroups]
    scheduling.volcano.sh: [podgroups]
{{- end -}}

{{- /* "false" if the profile places the pods of groups one by one. */ -}}
{{- define "kubestow.hasGroups" -}}
{{- $has := true -}}
{{- range .pluginConfig -}}
{{- $args := .args | default dict -}}
{{- if and (eq .name "Kubestow") (or $args.parity (eq ($args.groups | default "on") "none")) -}}
{{- $has = false -}}
{{- end -}}
{{- end -}}
{{- $has -}}
{{- end -}}

{{- /* "false" if the profile's PodTopologySpread has no default constraints. */ -}}
{{- define "kubestow.hasDefaultSpread" -}}
{{- $has := true -}}
{{- range .pluginConfig -}}
{{- $args := .args | default dict -}}
{{- if and (eq .name "PodTopologySpread") (eq ($args.defaultingType | default "System") "List") (not $args.defaultConstraints) -}}
{{- $has = false -}}
{{- end -}}
{{- end -}}
{{- $has -}}
{{- end -}}

{{- /* Names of a set's `enabled` or `disabled`: (list set "enabled"), as JSON. */ -}}
{{- define "kubestow.namesOf" -}}
{{- $names := list -}}
{{- range get (first .) (last .) | default list -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{- /*
What the configuration leads to, over all profiles, as JSON: `reads`, a map from group to the plurals that are watched,
and `runs`, the points as `plugin/point`. As the daemon does it: multiPoint offers the defaults that it does not disable
and what it enables; a point takes what is offered and not disabled there, and what it enables itself. Plugins that
SchedulerProfiles may turn on count as if one more profile had just these.
*/ -}}
{{- define "kubestow.needs" -}}
{{- $reads := dict -}}
{{- $runs := list -}}
{{- $profiles := .Values.config.profiles | default (list dict) -}}
{{- with .Values.rbac.extraPlugins -}}
{{- $named := list -}}
{{- range . -}}
{{- $named = append $named (dict "name" .) -}}
{{- end -}}
{{- $only := dict "enabled" $named "disabled" (list (dict "name" "*")) -}}
{{- $profiles = append $profiles (dict "plugins" (dict "multiPoint" $only)) -}}
{{- end -}}
{{- range $profile := $profiles -}}
{{- $sets := $profile.plugins | default dict -}}
{{- $multi := $sets.multiPoint | default dict -}}
{{- $enabled := include "kubestow.namesOf" (list $multi "enabled") | fromJsonArray -}}
{{- $disabled := include "kubestow.namesOf" (list $multi "disabled") | fromJsonArray -}}
{{- range $plugin, $row := include "kubestow.pluginTable" $ | fromYaml -}}
{{- $offered := or (has $plugin $enabled) (not (or (has "*" $disabled) (has $plugin $disabled))) -}}
{{- $isRun := false -}}
{{- if and (eq $plugin "GangScheduling") (eq (include "kubestow.hasGroups" $profile) "false") (not (has $plugin $enabled)) -}}
{{- $offered = false -}}
{{- end -}}
{{- range $point := $row.points -}}
{{- $set := get $sets $point | default dict -}}
{{- $here := include "kubestow.namesOf" (list $set "enabled") | fromJsonArray -}}
{{- $gone := include "kubestow.namesOf" (list $set "disabled") | fromJsonArray -}}
{{- if or (has $plugin $here) (and $offered (not (or (has "*" $gone) (has $plugin $gone)))) -}}
{{- $isRun = true -}}
{{- $runs = append $runs (printf "%s/%s" $plugin $point) -}}
{{- end -}}
{{- end -}}
{{- if and $isRun (or (ne $plugin "PodTopologySpread") (eq (include "kubestow.hasDefaultSpread" $profile) "true")) -}}
{{- range $group, $plurals := $row.reads -}}
{{- $_ := set $reads $group (concat (get $reads $group | default list) $plurals | uniq | sortAlpha) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.csiStorageCapacityApiVersion "none") (hasKey $reads "storage.k8s.io") -}}
{{- $_ := set $reads "storage.k8s.io" (without (get $reads "storage.k8s.io") "csistoragecapacities") -}}
{{- end -}}
{{- /* On by default in 1.37, where these three gates are locked: with one of them off, the daemon decides as 1.36 does. */ -}}
{{- $gates := .Values.featureGates | default dict -}}
{{- $rules := toString (get $gates "DRADeviceTaintRules") -}}
{{- range $locked := list "DRAExtendedResource" "DRAPrioritizedList" "DRAResourceClaimDeviceStatus" -}}
{{- if and (eq $rules "") (eq (toString (get $gates $locked)) "false") -}}
{{- $rules = "false" -}}
{{- end -}}
{{- end -}}
{{- if and (ne $rules "false") (hasKey $reads "resource.k8s.io") -}}
{{- $_ := set $reads "resource.k8s.io" (append (get $reads "resource.k8s.io") "devicetaintrules" | sortAlpha) -}}
{{- end -}}
{{- dict "reads" $reads "runs" $runs | toJson -}}
{{- end -}}

{{- /* The rules of the ClusterRole. */ -}}
{{- define "kubestow.rules" -}}
{{- $needs := include "kubestow.needs" . | fromJson -}}
{{- $runs := $needs.runs -}}
# pods, nodes, and writes about pods
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [pods/binding]
  verbs: [create]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# other installations with the same scheduler names
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [list]
{{- with $needs.reads }}
# kinds that the enabled plugins read
{{- range $group, $plurals := . }}
{{- with $plurals }}
- apiGroups: [{{ $group | quote }}]
  resources: [{{ join ", " . }}]
  verbs: [list, watch]
{{- end }}
{{- end }}
{{- end }}
{{- if has "GangScheduling/preEnqueue" $runs }}
# groups
- apiGroups: [scheduling.k8s.io]
  resources: [podgroups/status]
  verbs: [patch]
{{- end }}
{{- if has "DefaultPreemption/postFilter" $runs }}
# preemption
- apiGroups: [""]
  resources: [pods]
  verbs: [delete]
{{- end }}
{{- if has "VolumeBinding/preBind" $runs }}
# volumes
- apiGroups: [""]
  resources: [persistentvolumeclaims, persistentvolumes]
  verbs: [get, patch]
{{- if .Values.rbac.readClaimEvents }}
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end }}
{{- end }}
{{- if has "DynamicResources/preBind" $runs }}
# devices
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims]
  {{- if dig "DRAExtendedResource" true (.Values.featureGates | default dict) }}
  # create and delete: claims for extended resources
  verbs: [create, delete, get, patch, update]
  {{- else }}
  verbs: [get, patch, update]
  {{- end }}
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims/status, resourceclaims/binding]
  verbs: [patch, update]
{{- end }}
# authentication and authorization of clients
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- if .Values.schedulerProfiles.enabled }}
# SchedulerProfile objects
- apiGroups: [kubestow.dev]
  resources: [schedulerprofiles]
  verbs: [list, watch]
- apiGroups: [kubestow.dev]
  resources: [schedulerprofiles/status]
  verbs: [patch]
{{- end }}
{{- if .Values.whatIfObjects.enabled }}
# WhatIf objects, and the workloads that they refer to
- apiGroups: [kubestow.dev]
  resources: [whatifs]
  verbs: [get, list, watch]
- apiGroups: [kubestow.dev]
  resources: [whatifs/status]
  verbs: [patch]
- apiGroups: [apps]
  resources: [deployments, replicasets, statefulsets]
  verbs: [get]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get]
{{- end }}
{{- with .Values.rbac.extraRules }}
# rbac.extraRules
{{ toYaml . }}
{{- end }}
{{- end -}}
