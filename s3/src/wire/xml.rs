//! XML bodies: a writer with the escaping of the S3 API, and a strict bounded [`Reader`].

mod reader;

pub use reader::Reader;

/// The namespace of the documents.
pub const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// Builds a document. Names of elements are constants of the program; texts are escaped.
#[derive(Clone, Debug, Default)]
pub struct Writer(String);

impl Writer {
    /// A document that starts with the XML declaration.
    #[must_use]
    pub fn document() -> Self {
        Self("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned())
    }

    /// Opens the root element in the namespace of S3.
    pub fn open_root(&mut self, name: &str) {
        self.0.push('<');
        self.0.push_str(name);
        self.0.push_str(" xmlns=\"");
        self.0.push_str(NAMESPACE);
        self.0.push_str("\">");
    }

    /// A root element that holds text only.
    pub fn root_text(&mut self, name: &str, text: &str) {
        self.open_root(name);
        self.escape(text);
        self.close(name);
    }

    pub fn open(&mut self, name: &str) {
        self.0.push('<');
        self.0.push_str(name);
        self.0.push('>');
    }

    /// Opens an element with attributes.
    pub fn open_with(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.0.push('<');
        self.0.push_str(name);
        for (attribute, value) in attributes {
            self.0.push(' ');
            self.0.push_str(attribute);
            self.0.push_str("=\"");
            self.escape(value);
            self.0.push('"');
        }
        self.0.push('>');
    }

    pub fn close(&mut self, name: &str) {
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push('>');
    }

    /// An element that holds text only.
    pub fn text(&mut self, name: &str, text: &str) {
        self.open(name);
        self.escape(text);
        self.close(name);
    }

    /// An element that holds a number.
    pub fn number(&mut self, name: &str, number: u64) {
        self.text(name, &number.to_string());
    }

    /// An element that holds `true` or `false`.
    pub fn flag(&mut self, name: &str, flag: bool) {
        self.text(name, if flag { "true" } else { "false" });
    }

    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Control characters become references, as S3 writes them, though XML 1.0 has no such
    /// references below U+0020 but three: keys may hold them, and clients that list such keys ask
    /// for `encoding-type=url`.
    fn escape(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                control if u32::from(control) < 0x20 => {
                    let code = u32::from(control);
                    self.0.push_str(&format!("&#x{code:x};"));
                }
                other => self.0.push(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_read_back() {
        let text = "a<b>&\"c\" \r\n\t \u{1} \u{e9} ]]>";
        let mut writer = Writer::document();
        writer.open_root("Root");
        writer.text("Text", text);
        writer.number("Number", 7);
        writer.flag("Flag", true);
        writer.open_with("With", &[("a", "<&>")]);
        writer.close("With");
        writer.close("Root");
        let document = writer.finish();
        assert!(
            document.contains("&#xd;&#xa;&#x9; &#x1; \u{e9} ]]&gt;"),
            "{document}"
        );
        assert!(document.contains("<With a=\"&lt;&amp;&gt;\"></With>"));

        let mut reader = Reader::root(document.as_bytes(), "Root").unwrap();
        assert_eq!(reader.child().unwrap().as_deref(), Some("Text"));
        assert_eq!(reader.text().unwrap(), text);
        assert_eq!(reader.child().unwrap().as_deref(), Some("Number"));
        assert_eq!(reader.text().unwrap(), "7");
        assert_eq!(reader.child().unwrap().as_deref(), Some("Flag"));
        reader.skip().unwrap();
        assert_eq!(reader.child().unwrap().as_deref(), Some("With"));
        assert_eq!(reader.text().unwrap(), "");
        assert_eq!(reader.child().unwrap(), None);
        reader.finish().unwrap();
    }
}
