{{- define "ballista.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "ballista.account" -}}
{{- default (include "ballista.name" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "ballista.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Labels by which the pods of one role are found: (dict "root" $ "role" "scheduler") */}}
{{- define "ballista.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "ballista.scheme" -}}
{{ if eq .Values.tls.mode "none" }}HTTP{{ else }}HTTPS{{ end }}
{{- end }}

{{/* What both roles are told */}}
{{- define "ballista.config" -}}
role: {{ .role }}
state_location: {{ required "store.location: the URL of the cluster's documents, such as s3://bucket/prefix" .root.Values.store.location | quote }}
node_bind_address: 0.0.0.0
data_dir: /var/lib/ballista
drain_timeout_ms: {{ printf "%vs" .root.Values.drainSeconds }}
{{- if eq .root.Values.tls.mode "none" }}
allow_insecure_connections: true
{{- else if eq .root.Values.tls.mode "csi" }}
node_mtls_ca_certificate_file: /tls/ca.crt
node_mtls_certificate_file: /tls/tls.crt
node_mtls_key_file: /tls/tls.key
node_mtls_removed_file: /etc/ballista/removed
{{- else }}
{{- fail "tls.mode: csi or none" }}
{{- end }}
{{- if .root.Values.openMetrics }}
open_metrics: true
{{- end }}
{{- end }}

{{- define "ballista.pod" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $values := index $root.Values $role -}}
{{- $headless := printf "%s-%s" (include "ballista.name" $root) $role -}}
serviceAccountName: {{ include "ballista.account" $root }}
terminationGracePeriodSeconds: {{ $root.Values.gracePeriodSeconds }}
securityContext: {runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, seccompProfile: {type: RuntimeDefault}}
{{- with $root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if ne $root.Values.antiAffinity "none" }}
affinity:
  podAntiAffinity:
    {{- if eq $root.Values.antiAffinity "required" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "ballista.selector" . | nindent 12 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "ballista.selector" . | nindent 14 }}
    {{- end }}
{{- end }}
containers:
  - name: {{ $role }}
    image: "{{ $root.Values.image.repository }}:{{ default $root.Chart.AppVersion $root.Values.image.tag }}"
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args:
      - node
      - --config
      - /etc/ballista/{{ $role }}.yaml
      - --node-id
      - $(POD_NAME)
      - --node-advertise-address
      - $(POD_NAME).{{ $headless }}.{{ $root.Release.Namespace }}.svc
    env:
      - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    {{- with $root.Values.store.secret }}
    envFrom:
      - secretRef: {name: {{ . }}}
    {{- end }}
    ports:
      {{- if eq $role "scheduler" }}
      - {name: flight, containerPort: 50051}
      - {name: control, containerPort: 50052}
      {{- else }}
      - {name: data, containerPort: 50053}
      - {name: parts, containerPort: 50054}
      {{- end }}
      - {name: http, containerPort: 8090}
      - {name: metrics, containerPort: 9090}
    startupProbe: {httpGet: {path: /health, port: http, scheme: {{ include "ballista.scheme" $root }}}, periodSeconds: 2, failureThreshold: 90}
    livenessProbe: {httpGet: {path: /health, port: http, scheme: {{ include "ballista.scheme" $root }}}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
    readinessProbe: {httpGet: {path: /ready, port: http, scheme: {{ include "ballista.scheme" $root }}}, periodSeconds: 3, timeoutSeconds: 3}
    resources: {{- toYaml $values.resources | nindent 6 }}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts:
      - {name: config, mountPath: /etc/ballista, readOnly: true}
      - {name: data, mountPath: /var/lib/ballista}
      - {name: tmp, mountPath: /tmp}
      {{- if eq $root.Values.tls.mode "csi" }}
      - {name: tls, mountPath: /tls, readOnly: true}
      {{- end }}
      {{- if $root.Values.tokensSecret }}
      - {name: tokens, mountPath: /tokens, readOnly: true}
      {{- end }}
volumes:
  - name: config
    configMap: {name: {{ include "ballista.name" $root }}}
  - name: tmp
    emptyDir: {}
  {{- if eq $role "scheduler" }}
  - name: data
    emptyDir: {}
  {{- end }}
  {{- if eq $root.Values.tls.mode "csi" }}
  - name: tls
    csi:
      driver: csi.cert-manager.io
      readOnly: true
      volumeAttributes:
        csi.cert-manager.io/issuer-name: {{ $root.Values.tls.issuer.name | quote }}
        csi.cert-manager.io/issuer-kind: {{ $root.Values.tls.issuer.kind | quote }}
        csi.cert-manager.io/issuer-group: {{ $root.Values.tls.issuer.group | quote }}
        csi.cert-manager.io/duration: {{ $root.Values.tls.duration | quote }}
        # The first name says which node this is and in which role.
        csi.cert-manager.io/dns-names: {{ printf "${POD_NAME}.%s.ballista,${POD_NAME}.%s.${POD_NAMESPACE}.svc,%s.${POD_NAMESPACE}.svc,localhost" $role $headless (include "ballista.name" $root) | quote }}
        csi.cert-manager.io/key-usages: "digital signature,key encipherment,server auth,client auth"
        csi.cert-manager.io/fs-group: "10001"
  {{- end }}
  {{- if $root.Values.tokensSecret }}
  - name: tokens
    secret: {secretName: {{ $root.Values.tokensSecret }}, defaultMode: 0440}
  {{- end }}
{{- end }}
