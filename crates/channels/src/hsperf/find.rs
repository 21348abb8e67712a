//! Finds and checks the file in which a JVM keeps its counters.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::hsperf::JvmError;
use crate::maps::Region;

/// Limit of the size of a JVM's counter file. HotSpot's default is 32 KiB; a far larger file is not HotSpot's.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Returns the mapping of a JVM's counter file.
pub(super) fn counters_region(pid: u32, regions: &[Region]) -> Result<&Region, JvmError> {
    let is_counters = |region: &&Region| {
        let dir = region.path.parent().and_then(Path::file_name);
        region.has_file()
            && region.is_shared
            && dir.is_some_and(|dir| dir.as_encoded_bytes().starts_with(b"hsperfdata_"))
    };
    let is_libjvm = |region: &Region| region.path.file_name().is_some_and(|name| name == "libjvm.so");
    match regions.iter().find(is_counters) {
        Some(region) => Ok(region),
        None if regions.iter().any(is_libjvm) => Err(JvmError::NoCounters { pid }),
        None => Err(JvmError::NoJvm { pid }),
    }
}

/// Returns an error unless the file belongs to the JVM's user. Any user can put files into /tmp.
pub(super) fn check_owner(pid: u32, file: &File) -> Result<(), JvmError> {
    let failed = |source| JvmError::Open { pid, source };
    let found = file.metadata().map_err(failed)?;
    let user = effective_uid(pid).map_err(failed)?;
    let untrusted = |what: String| Err(JvmError::Untrusted { pid, what });
    if !found.is_file() {
        return untrusted("the mapped file is not a regular file".into());
    }
    if found.uid() != user {
        return untrusted(format!("the file belongs to user {}, and the JVM to user {user}", found.uid()));
    }
    if found.len() == 0 || found.len() > FILE_BYTES_MAX {
        return untrusted(format!("the file has {} bytes", found.len()));
    }
    Ok(())
}

/// Returns the effective user id of the process.
fn effective_uid(pid: u32) -> io::Result<u32> {
    const EFFECTIVE: usize = 1;
    let status = fs::read(format!("/proc/{pid}/status"))?;
    let status = String::from_utf8_lossy(&status);
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let user = users.and_then(|users| users.split_whitespace().nth(EFFECTIVE)?.parse().ok());
    user.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn counter_file_of_another_user_is_refused() {
        const NOBODY: u32 = 65534;
        if !rustix::process::geteuid().is_root() {
            return sidelane_testing::skip("needs root, to give a file away");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counters");
        fs::write(&path, "counters").unwrap();
        let checked = || check_owner(std::process::id(), &File::open(&path).unwrap());
        assert!(checked().is_ok());
        chown(&path, Some(NOBODY), None).unwrap();
        let refused = checked().unwrap_err();
        assert!(matches!(&refused, JvmError::Untrusted { what, .. } if what.contains("user 65534")), "{refused}");
    }
}
