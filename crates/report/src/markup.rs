//! HTML helpers for the page: escaping, templates, small elements.
//!
//! Every text in a result may come from outside (a command line, a CPU's name). So every text
//! passes through [`escape`], and the embedded JSON through [`embed_json`].

use serde::Serialize;

/// Replaces each `{{name}}` of a template in one pass, so that braces in a value stay unchanged.
pub fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut page = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("the template closes its braces");
        let (_, value) =
            values.iter().find(|(known, _)| *known == name).expect("the template names only values that page() gives");
        page.push_str(before);
        page.push_str(value);
        rest = after;
    }
    page + rest
}

/// Escapes `text` for HTML, in an element or a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Writes `value` as JSON that cannot end its script element, whatever characters its strings contain.
///
/// In JSON `<` occurs only inside strings, and there `\u003c` is the same character.
pub fn embed_json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("what is embedded has only string keys");
    json.replace('<', "\\u003c")
}

/// Draws a description list of names and texts.
pub fn description_list(facts: impl Iterator<Item = (String, String)>) -> String {
    let items: String = facts
        .map(|(name, text)| format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(&name), escape(&text)))
        .collect();
    format!("<dl>\n{items}</dl>")
}

/// Draws a section of the page with a heading; `body` is HTML.
pub fn section(id: &str, title: &str, body: &str) -> String {
    format!("<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{title}</h2>\n{body}\n</section>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_in_a_value_are_not_replaced() {
        let page = fill("<{{a}}|{{b}}>", &[("a", "{{b}}"), ("b", "2")]);
        assert_eq!(page, "<{{b}}|2>");
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a b='c'>&\""), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;");
    }

    #[test]
    fn embedded_json_cannot_end_its_script() {
        let json = embed_json(&"</script><!--");
        assert!(!json.contains('<'));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "</script><!--");
    }
}
