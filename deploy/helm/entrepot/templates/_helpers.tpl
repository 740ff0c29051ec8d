{{- define "entrepot.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "entrepot.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "entrepot.labels" -}}
{{ include "entrepot.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The environment of every container that runs entrepot. */}}
{{- define "entrepot.env" -}}
- name: ENTREPOT_PUBLIC_URL
  value: {{ .Values.publicUrl | quote }}
- name: ENTREPOT_NODE_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: ENTREPOT_WORKERS
  value: {{ .Values.workers | quote }}
{{- with .Values.trustedProxies }}
- name: ENTREPOT_TRUSTED_PROXIES
  value: {{ join "," . | quote }}
{{- end }}
{{- if .Values.metrics.enabled }}
- name: ENTREPOT_METRICS
  value: {{ printf "0.0.0.0:%v" .Values.metrics.port | quote }}
{{- end }}
- name: ENTREPOT_DRAIN_SECONDS
  value: {{ .Values.drainSeconds | quote }}
{{- if .Values.rootKey.existingSecret }}
- name: ENTREPOT_ROOT_KEY_FILE
  value: /etc/entrepot/root.key
{{- end }}
{{- with .Values.database.existingSecret }}
- name: ENTREPOT_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: url}}
{{- end }}
{{- if eq .Values.mode "fleet" }}
- name: ENTREPOT_STORE_S3_BUCKET
  value: {{ .Values.s3.bucket | quote }}
{{- with .Values.s3.endpoint }}
- name: ENTREPOT_STORE_S3_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- with .Values.s3.region }}
- name: ENTREPOT_STORE_S3_REGION
  value: {{ . | quote }}
{{- end }}
{{- with .Values.s3.prefix }}
- name: ENTREPOT_STORE_S3_PREFIX
  value: {{ . | quote }}
{{- end }}
- name: ENTREPOT_STORE_S3_PATH_STYLE
  value: {{ .Values.s3.pathStyle | quote }}
- name: ENTREPOT_CACHE_BYTES
  value: {{ .Values.cache.bytes | quote }}
{{- with .Values.s3.existingSecret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: access-key-id}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: secret-access-key}}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ printf "ENTREPOT_%s" (upper $name) }}
  value: {{ $value | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The pod, which both modes have. */}}
{{- define "entrepot.pod" -}}
metadata:
  labels:
    {{- include "entrepot.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- $annotations := merge (dict) .Values.podAnnotations (ternary .Values.metrics.podAnnotations (dict) .Values.metrics.enabled) }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "entrepot.fullname" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  # It serves on while it says that it is about to stop, then drains for 30 s.
  terminationGracePeriodSeconds: {{ add .Values.drainSeconds 45 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    runAsGroup: 1000
    fsGroup: 1000
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $image := printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
  {{- if .Values.rootKey.existingSecret }}
  initContainers:
    # The group may read a Secret's file, which the server refuses of its key.
    - name: root-key
      image: {{ $image | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [install, -m, "0600", /run/root-key/root.key, /etc/entrepot/root.key]
      securityContext: {{- include "entrepot.confined" . | nindent 8 }}
      volumeMounts:
        - {name: root-key-secret, mountPath: /run/root-key, readOnly: true}
        - {name: root-key, mountPath: /etc/entrepot}
  {{- end }}
  containers:
    - name: entrepot
      image: {{ $image | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      {{- if .Values.maintenance }}
      command: [sleep, infinity]
      {{- else }}
      args: [serve]
      {{- end }}
      env:
        {{- include "entrepot.env" . | nindent 8 }}
      ports:
        - {name: http, containerPort: 5000}
        {{- if .Values.metrics.enabled }}
        - {name: metrics, containerPort: {{ .Values.metrics.port }}}
        {{- end }}
      {{- if not .Values.maintenance }}
      # The first start of a version migrates the database, for as long as that takes.
      startupProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 2
        failureThreshold: 1800
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: 2
      {{- end }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext: {{- include "entrepot.confined" . | nindent 8 }}
      volumeMounts:
        - {name: data, mountPath: /var/lib/entrepot}
        - {name: temporary, mountPath: /tmp}
        {{- if .Values.rootKey.existingSecret }}
        - {name: root-key, mountPath: /etc/entrepot, readOnly: true}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - name: temporary
      emptyDir: {}
    {{- if eq .Values.mode "fleet" }}
    - name: data
      emptyDir: {{- with .Values.cache.sizeLimit }} {sizeLimit: {{ . | quote }}}{{ else }} {}{{ end }}
    {{- end }}
    {{- with .Values.rootKey.existingSecret }}
    - name: root-key-secret
      secret: {secretName: {{ . | quote }}, defaultMode: 0440}
    - name: root-key
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    {{- end }}
    {{- with .Values.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq .Values.mode "fleet" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "entrepot.selector" . | nindent 10 }}
  {{- end }}
{{- end }}

{{- define "entrepot.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
