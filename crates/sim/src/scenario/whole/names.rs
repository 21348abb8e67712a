//! Names and classes of services and containers.

use crate::scenario::given::Result;
use crate::smt::{Class, Interference};
use sidelane_toml::Reader;

/// The name of a service or a kind of containers; names differ.
pub(super) fn name<'t>(reader: &Reader<'_, 't>, others: &[&str]) -> Result<&'t str> {
    let name = reader.wanted_text("name", "write a name")?;
    if others.contains(&name) {
        return Err(reader.wrong("name", format!("is \"{name}\", which is used already"), "write another name"));
    }
    Ok(name)
}

/// Its class, which is its name if nothing else is said.
pub(super) fn class(reader: &Reader, name: &str, smt: &Interference) -> Result<Class> {
    let class = reader.text("class", "write a name").unwrap_or(name);
    Ok(smt.class(class).expect("every name was made a class"))
}
