//! Names and classes of services and containers.

use crate::scenario::inputs::Result;
use crate::smt::{Class, Interference};
use sidelane_toml::Reader;

/// Reads the name of a service or a kind of containers, which must differ from `others`.
pub(super) fn read_name<'t>(reader: &Reader<'_, 't>, others: &[&str]) -> Result<&'t str> {
    let name = reader.required_text("name", "write a name")?;
    if others.contains(&name) {
        return Err(reader.record_problem(
            "name",
            format!("is \"{name}\", which is used already"),
            "write another name",
        ));
    }
    Ok(name)
}

/// Reads the class of a service or a kind of containers; by default it has the name `name`.
pub(super) fn read_class(reader: &Reader, name: &str, smt: &Interference) -> Result<Class> {
    let class = reader.text("class", "write a name").unwrap_or(name);
    Ok(smt.class(class).expect("every name was made a class"))
}
