//! The file in which `sidelane-kube` reports pods: those that have batch lanes, and those with an objective.
//!
//! It is a file and no request, so that a restart of either program loses nothing.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Path of the file. It is not there without `sidelane-kube`.
pub const POD_FILE: &str = "/run/sidelane-pods.json";

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodFile {
    /// Pods that have lanes or an objective.
    pub pods: Vec<Pod>,
}

/// Pod that has lanes or an objective.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// NAMESPACE/NAME of the pod.
    pub name: String,
    /// CPUs of the batch lanes that the pod has. A pod that has any is batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<u32>,
    /// Objective of the pod's requests, as in `slo` of the agent's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<String>,
}

impl PodFile {
    /// Reads the file. It is empty if it is not there.
    ///
    /// # Errors
    /// If the file cannot be read, or has another form.
    pub fn read(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes the file. A reader sees the old or the new one, and never a part.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(&new, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pods.json");
        assert_eq!(PodFile::read(&path).unwrap(), PodFile::default());
        let batch = Pod { name: "default/batch".into(), lanes: vec![1, 3], slo: None };
        let service = Pod { name: "default/redis".into(), lanes: Vec::new(), slo: Some("p99=10ms".into()) };
        let file = PodFile { pods: vec![batch, service] };
        file.write(&path).unwrap();
        assert_eq!(PodFile::read(&path).unwrap(), file);
        let text = r#"{"pods":[{"name":"default/batch","lanes":[1,3]},{"name":"default/redis","slo":"p99=10ms"}]}"#;
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        fs::write(&path, &text[..20]).unwrap();
        assert!(PodFile::read(&path).is_err());
    }

    #[test]
    fn fuzzed_pod_files_are_read_or_refused() {
        sidelane_testing::fuzz("pod-file", |bytes| {
            let Ok(file) = serde_json::from_slice::<PodFile>(bytes) else { return };
            let again: PodFile = serde_json::from_slice(&serde_json::to_vec(&file).unwrap()).unwrap();
            assert_eq!(again, file);
        });
    }
}
