{{- define "midspan.name" -}}
{{- printf "%s" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "midspan.selector" -}}
app.kubernetes.io/name: midspan
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "midspan.labels" -}}
{{ include "midspan.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
