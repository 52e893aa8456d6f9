// Reads manifests as strictly as Kubernetes' own types are written, and prints the relay's configuration among them.
// PodMonitor is not Kubernetes' own, and only has to be YAML.
package main

import (
	"bytes"
	"fmt"
	"os"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	text, err := os.ReadFile(os.Args[1])
	fail(err)
	kinds := map[string]int{}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var kind struct{ Kind string }
		fail(yaml.Unmarshal(document, &kind))
		kinds[kind.Kind]++
		switch kind.Kind {
		case "ConfigMap":
			var config core.ConfigMap
			fail(yaml.UnmarshalStrict(document, &config))
			fmt.Print(config.Data["relay.toml"])
		case "DaemonSet":
			var set apps.DaemonSet
			fail(yaml.UnmarshalStrict(document, &set))
			for key, value := range set.Spec.Selector.MatchLabels {
				if set.Spec.Template.Labels[key] != value {
					fail(fmt.Errorf("the pods are not those that are selected: %s", key))
				}
			}
			mounted := set.Spec.Template.Spec.Containers[0].VolumeMounts
			volumes := map[string]bool{}
			for _, volume := range set.Spec.Template.Spec.Volumes {
				volumes[volume.Name] = true
			}
			for _, mount := range mounted {
				if !volumes[mount.Name] {
					fail(fmt.Errorf("no volume %s", mount.Name))
				}
			}
		case "PodMonitor":
		default:
			fail(fmt.Errorf("a manifest of kind %q", kind.Kind))
		}
	}
	if kinds["ConfigMap"] != 1 || kinds["DaemonSet"] != 1 || kinds["PodMonitor"] != 1 {
		fail(fmt.Errorf("manifests are missing: %v", kinds))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
