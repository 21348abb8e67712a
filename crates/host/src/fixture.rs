//! Small trees of files for tests, written as text: `path: content` in each line, relative to the root of the tree.
//!
//! `#` starts a comment line. A cpulist in braces repeats the line for each CPU: `cpu{0,4}/online: 1` stands for
//! `cpu0/online: 1` and `cpu4/online: 1`.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::cpulist::CpuSet;

/// Creates the sysfs of a machine in `tests/fixtures/topology`.
pub fn create_machine_sysfs(name: &str) -> TempDir {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/topology");
    create_file_tree(&fs::read_to_string(dir.join(format!("{name}.txt"))).expect(name))
}

/// Creates the tree of files that `text` describes.
pub fn create_file_tree(text: &str) -> TempDir {
    let root = TempDir::new().expect("a temporary directory");
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        // A path may have a colon, too (`intel-rapl:0`), and the content may be empty.
        let (path, content) = line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, ""))).expect(line);
        for path in expand_braces(path) {
            write(&root.path().join(path), content.trim());
        }
    }
    root
}

/// Expands `cpu{0,4}/online` to `cpu0/online` and `cpu4/online`.
fn expand_braces(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else {
        return vec![path.to_owned()];
    };
    let (list, after) = rest.split_once('}').expect(path);
    cpu_set(list).iter().map(|cpu| format!("{before}{cpu}{after}")).collect()
}

/// Writes a file with a line end, as the kernel does.
pub fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().expect("a file in a directory")).expect("a directory");
    fs::write(path, format!("{content}\n")).expect("a file");
}

/// Parses the CPUs in a cpulist.
pub fn cpu_set(list: &str) -> CpuSet {
    list.parse().expect(list)
}
