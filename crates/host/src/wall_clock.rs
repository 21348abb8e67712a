//! Time of day, in forms for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock::now_ns;

/// Returns the Unix time at which `CLOCK_MONOTONIC` was 0, in nanoseconds. It changes when the time of day is set.
pub fn monotonic_epoch_ns() -> u64 {
    (since_epoch(SystemTime::now()).as_nanos() as u64).saturating_sub(now_ns())
}

/// Returns the time of day as `14:02:11`, in the time zone of this process.
pub fn local_time() -> String {
    let time = to_calendar_time(SystemTime::now(), libc::localtime_r);
    format!("{:02}:{:02}:{:02}", time.tm_hour, time.tm_min, time.tm_sec)
}

/// Returns a time as `2026-03-01T14:02:11.123456Z`, in UTC.
pub fn format_utc(system_time: SystemTime) -> String {
    let time = to_calendar_time(system_time, libc::gmtime_r);
    let micros = since_epoch(system_time).subsec_micros();
    let (year, month) = (time.tm_year + 1900, time.tm_mon + 1);
    format!(
        "{year:04}-{month:02}-{:02}T{:02}:{:02}:{:02}.{micros:06}Z",
        time.tm_mday, time.tm_hour, time.tm_min, time.tm_sec
    )
}

fn since_epoch(system_time: SystemTime) -> Duration {
    system_time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

type CalendarConversion = unsafe extern "C" fn(*const libc::time_t, *mut libc::tm) -> *mut libc::tm;

fn to_calendar_time(system_time: SystemTime, convert: CalendarConversion) -> libc::tm {
    let seconds = since_epoch(system_time).as_secs() as libc::time_t;
    // SAFETY: tm is plain data, and both pointers are valid for the call.
    unsafe {
        let mut time = std::mem::zeroed();
        convert(&seconds, &mut time);
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_time_has_its_date_and_its_microseconds() {
        let at = UNIX_EPOCH + Duration::from_micros(1_772_373_731_000_042);
        assert_eq!(format_utc(at), "2026-03-01T14:02:11.000042Z");
        assert_eq!(format_utc(UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn the_time_of_day_has_two_digits_each() {
        let time = local_time();
        assert!(
            time.len() == 8 && time.split(':').all(|part| part.parse::<u8>().is_ok_and(|part| part < 61)),
            "{time}"
        );
    }
}
