//! Model of how Redis parses commands, to check the proxy's reader against. It follows the behaviour of
//! `processInputBuffer`, `processInlineBuffer`, `processMultibulkBuffer` and `sdssplitargs`.

use sidelane_proxy::resp::CommandReader;

/// Commands that Redis parses, and whether it then closes the connection with an error.
pub struct Reading {
    pub commands: Vec<Vec<Vec<u8>>>,
    pub is_error: bool,
}

const LINE_MAX: usize = 64 << 10;

/// Parses bytes as Redis does, all at once.
pub fn parse_commands(bytes: &[u8]) -> Reading {
    let (mut commands, mut at) = (Vec::new(), 0);
    let is_error = loop {
        let rest = &bytes[at..];
        let read = match rest.first() {
            None => break false,
            Some(b'*') => parse_multibulk(rest),
            Some(_) => parse_inline(rest),
        };
        match read {
            Read::Command(arguments, used) => {
                at += used;
                if !arguments.is_empty() {
                    commands.push(arguments);
                }
            }
            Read::More => break false,
            Read::Error => break true,
        }
    };
    Reading { commands, is_error }
}

enum Read {
    Command(Vec<Vec<u8>>, usize),
    More,
    Error,
}

/// Finds a byte before the first zero byte, as C's `strchr` does.
fn strchr(text: &[u8], byte: u8) -> Option<usize> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    text[..end].iter().position(|other| *other == byte)
}

fn parse_inline(bytes: &[u8]) -> Read {
    let Some(newline) = strchr(bytes, b'\n') else {
        return if bytes.len() > LINE_MAX { Read::Error } else { Read::More };
    };
    let end = if newline > 0 && bytes[newline - 1] == b'\r' { newline - 1 } else { newline };
    match split_args(&bytes[..end]) {
        Some(arguments) => Read::Command(arguments, newline + 1),
        None => Read::Error,
    }
}

fn parse_multibulk(bytes: &[u8]) -> Read {
    let (count, mut at) = match parse_number_line(bytes, 0) {
        Ok(Some(read)) => read,
        Ok(None) => return Read::More,
        Err(()) => return Read::Error,
    };
    if count > i64::from(i32::MAX) {
        return Read::Error;
    }
    let mut arguments = Vec::new();
    for _ in 0..count {
        if bytes.get(at).is_some_and(|byte| *byte != b'$') {
            // Redis waits for the complete line before it checks this byte. The model reports the error at once.
            return Read::Error;
        }
        let (length, text) = match parse_number_line(bytes, at) {
            Ok(Some(read)) => read,
            Ok(None) => return Read::More,
            Err(()) => return Read::Error,
        };
        let Ok(length) = usize::try_from(length) else { return Read::Error };
        if length > 512 << 20 {
            return Read::Error;
        }
        if bytes.len() < text + length + 2 {
            return Read::More;
        }
        arguments.push(bytes[text..text + length].to_vec());
        at = text + length + 2;
    }
    Read::Command(arguments, at)
}

/// Parses the number after the type byte at index `start`. Returns the number and the index of the next line.
fn parse_number_line(bytes: &[u8], start: usize) -> Result<Option<(i64, usize)>, ()> {
    let line = &bytes[start..];
    let Some(end) = strchr(line, b'\r') else { return if line.len() > LINE_MAX { Err(()) } else { Ok(None) } };
    if end + 2 > line.len() {
        return Ok(None);
    }
    string_to_number(&line[1..end]).map(|number| Some((number, start + end + 2))).ok_or(())
}

/// Parses a number as `string2ll` of Redis does.
fn string_to_number(text: &[u8]) -> Option<i64> {
    if text == b"0" {
        return Some(0);
    }
    let (sign, digits) = if text.first() == Some(&b'-') { (-1, &text[1..]) } else { (1, text) };
    if !digits.first()?.is_ascii_digit() || digits[0] == b'0' {
        return None;
    }
    digits.iter().try_fold(0_i64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(sign * digit)
    })
}

/// Splits a line as `sdssplitargs` of Redis does, as a state machine over a zero-terminated string.
fn split_args(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let text = [line, b"\0\0\0\0"].concat();
    let is_space = |byte: u8| b" \t\n\x0b\x0c\r".contains(&byte);
    let (mut p, mut arguments) = (0, Vec::new());
    loop {
        while text[p] != 0 && is_space(text[p]) {
            p += 1;
        }
        if text[p] == 0 {
            return Some(arguments);
        }
        let (mut current, mut in_double, mut in_single, mut done) = (Vec::new(), false, false, false);
        while !done {
            let byte = text[p];
            if in_double {
                let hex: Option<u8> = (byte == b'\\' && text[p + 1] == b'x')
                    .then(|| std::str::from_utf8(&text[p + 2..p + 4]).ok())
                    .flatten()
                    .filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()))
                    .and_then(|hex| u8::from_str_radix(hex, 16).ok());
                if let Some(hex) = hex {
                    current.push(hex);
                    p += 3;
                } else if byte == b'\\' && text[p + 1] != 0 {
                    p += 1;
                    let escapes = [(b'n', b'\n'), (b'r', b'\r'), (b't', b'\t'), (b'b', 8), (b'a', 7)];
                    let escape = escapes.iter().find(|(name, _)| *name == text[p]);
                    current.push(escape.map_or(text[p], |(_, byte)| *byte));
                } else if byte == b'"' {
                    if text[p + 1] != 0 && !is_space(text[p + 1]) {
                        return None;
                    }
                    done = true;
                } else if byte == 0 {
                    return None;
                } else {
                    current.push(byte);
                }
            } else if in_single {
                if byte == b'\\' && text[p + 1] == b'\'' {
                    p += 1;
                    current.push(b'\'');
                } else if byte == b'\'' {
                    if text[p + 1] != 0 && !is_space(text[p + 1]) {
                        return None;
                    }
                    done = true;
                } else if byte == 0 {
                    return None;
                } else {
                    current.push(byte);
                }
            } else {
                match byte {
                    b' ' | b'\n' | b'\r' | b'\t' | 0 => done = true,
                    b'"' => in_double = true,
                    b'\'' => in_single = true,
                    _ => current.push(byte),
                }
            }
            if text[p] != 0 {
                p += 1;
            }
        }
        arguments.push(current);
    }
}

/// Checks that the proxy's reader finds the same commands as Redis, or fewer and then refuses. Also checks that Redis
/// parses the proxy's output as the same commands. Returns their number.
pub fn check_reader(bytes: &[u8], new_reader: impl Fn() -> CommandReader) -> usize {
    let wanted = parse_commands(bytes);
    let mut counts = [1, bytes.len().max(1)].map(|step| {
        let (commands, is_refused) = read_in_steps(new_reader(), bytes, step);
        let is_same = match is_refused {
            true => wanted.commands.starts_with(&commands),
            false => wanted.commands == commands && !wanted.is_error,
        };
        let refused = if is_refused { " and refuses" } else { "" };
        assert!(
            is_same,
            "{}: the proxy reads {commands:?}{refused}; Redis: {:?}",
            bytes.escape_ascii(),
            wanted.commands
        );
        commands.len()
    });
    counts.sort_unstable();
    assert_eq!(counts[0], counts[1], "it depends on how the bytes come: {}", bytes.escape_ascii());
    counts[0]
}

fn read_in_steps(mut reader: CommandReader, bytes: &[u8], step_bytes: usize) -> (Vec<Vec<Vec<u8>>>, bool) {
    let (mut commands, mut start, mut came) = (Vec::new(), 0, 0);
    while came < bytes.len() {
        came = (came + step_bytes).min(bytes.len());
        loop {
            let Ok((used, command)) = reader.read(&bytes[start..came]) else { return (commands, true) };
            start += used;
            let Some(command) = command else { break };
            let arguments: Vec<Vec<u8>> = command.arguments().map(<[u8]>::to_vec).collect();
            let written = parse_commands(command.bytes());
            assert!(written.commands == [arguments.clone()] && !written.is_error, "{}", command.bytes().escape_ascii());
            commands.push(arguments);
        }
    }
    (commands, false)
}
