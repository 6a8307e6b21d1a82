//! A pull reader over a whole body: bounded in bytes, depth, elements and text. No document types,
//! no entities but the five of XML and character references, no processing instructions.

use quick_xml::events::{BytesRef, Event};

use crate::error::{Code, S3Error};
use crate::limits::{XML_BYTES_MAX, XML_DEPTH_MAX, XML_ELEMENTS_MAX, XML_TEXT_BYTES_MAX};

/// Reads one document, element by element. Namespaces are not looked at: clients of S3 send the
/// right one, a wrong one or none.
#[derive(Debug)]
pub struct Reader<'a> {
    inner: quick_xml::Reader<&'a [u8]>,
    /// Elements that are open.
    depth: usize,
    elements: usize,
}

impl<'a> Reader<'a> {
    /// Opens a body and enters its root element.
    ///
    /// # Errors
    /// `MalformedXML` if it has no root of this name, `MaxMessageLengthExceeded` beyond
    /// `XML_BYTES_MAX`.
    pub fn root(body: &'a [u8], name: &str) -> Result<Self, S3Error> {
        if body.len() > XML_BYTES_MAX {
            return Err(Code::MaxMessageLengthExceeded.into());
        }
        let text = std::str::from_utf8(body).map_err(|_| malformed())?;
        let mut inner = quick_xml::Reader::from_str(text);
        inner.config_mut().expand_empty_elements = true;
        let mut reader = Self {
            inner,
            depth: 0,
            elements: 0,
        };
        match reader.child()? {
            Some(root) if root == name => Ok(reader),
            Some(_) | None => Err(malformed()),
        }
    }

    /// Enters the next child of the open element; `None` leaves the element instead.
    ///
    /// # Errors
    /// `MalformedXML`, also if there is text between children.
    pub fn child(&mut self) -> Result<Option<String>, S3Error> {
        loop {
            match self.event()? {
                Event::Start(start) => {
                    let name = start.local_name().into_inner().to_owned();
                    self.enter()?;
                    return Ok(Some(name));
                }
                Event::End(_) => {
                    self.depth -= 1;
                    return Ok(None);
                }
                Event::Text(text) if text.xml10_content().trim().is_empty() => {}
                Event::Comment(_) => {}
                Event::Decl(_) if self.elements == 0 => {}
                Event::Text(_)
                | Event::CData(_)
                | Event::GeneralRef(_)
                | Event::Decl(_)
                | Event::PI(_)
                | Event::DocType(_)
                | Event::Empty(_)
                | Event::Eof => return Err(malformed()),
            }
        }
    }

    /// The text of the open element, which it leaves.
    ///
    /// # Errors
    /// `MalformedXML` if it has children or more than `XML_TEXT_BYTES_MAX` bytes.
    pub fn text(&mut self) -> Result<String, S3Error> {
        let mut all = String::new();
        loop {
            match self.event()? {
                Event::Text(text) => all.push_str(&text.xml10_content()),
                Event::CData(data) => all.push_str(&data.xml10_content()),
                Event::GeneralRef(reference) => all.push(resolve(&reference)?),
                Event::Comment(_) => {}
                Event::End(_) => {
                    self.depth -= 1;
                    return Ok(all);
                }
                Event::Start(_)
                | Event::Empty(_)
                | Event::Decl(_)
                | Event::PI(_)
                | Event::DocType(_)
                | Event::Eof => return Err(malformed()),
            }
            if all.len() > XML_TEXT_BYTES_MAX {
                return Err(malformed());
            }
        }
    }

    /// Leaves the open element, whatever is in it.
    ///
    /// # Errors
    /// `MalformedXML`.
    pub fn skip(&mut self) -> Result<(), S3Error> {
        let outside = self.depth - 1;
        loop {
            match self.event()? {
                Event::Start(_) => self.enter()?,
                Event::End(_) => {
                    self.depth -= 1;
                    if self.depth == outside {
                        return Ok(());
                    }
                }
                Event::Text(_) | Event::CData(_) | Event::GeneralRef(_) | Event::Comment(_) => {}
                Event::Empty(_)
                | Event::Decl(_)
                | Event::PI(_)
                | Event::DocType(_)
                | Event::Eof => return Err(malformed()),
            }
        }
    }

    /// Ends the document, whose root has been left.
    ///
    /// # Errors
    /// `MalformedXML` if anything but blanks and comments follows.
    pub fn finish(mut self) -> Result<(), S3Error> {
        if self.depth > 0 {
            return Err(malformed());
        }
        loop {
            match self.event()? {
                Event::Eof => return Ok(()),
                Event::Comment(_) => {}
                Event::Text(text) if text.xml10_content().trim().is_empty() => {}
                Event::Start(_)
                | Event::End(_)
                | Event::Empty(_)
                | Event::Text(_)
                | Event::CData(_)
                | Event::GeneralRef(_)
                | Event::Decl(_)
                | Event::PI(_)
                | Event::DocType(_) => return Err(malformed()),
            }
        }
    }

    fn event(&mut self) -> Result<Event<'a>, S3Error> {
        match self.inner.read_event() {
            Ok(Event::End(_)) if self.depth == 0 => Err(malformed()),
            Ok(event) => Ok(event),
            Err(_) => Err(malformed()),
        }
    }

    fn enter(&mut self) -> Result<(), S3Error> {
        self.depth += 1;
        self.elements += 1;
        if self.depth > XML_DEPTH_MAX || self.elements > XML_ELEMENTS_MAX {
            return Err(malformed());
        }
        Ok(())
    }
}

fn resolve(reference: &BytesRef<'_>) -> Result<char, S3Error> {
    if let Some(character) = reference.resolve_char_ref().map_err(|_| malformed())? {
        return Ok(character);
    }
    match &*reference.xml10_content() {
        "amp" => Ok('&'),
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "quot" => Ok('"'),
        "apos" => Ok('\''),
        _ => Err(malformed()),
    }
}

fn malformed() -> S3Error {
    Code::MalformedXml.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads everything there is.
    fn walk(body: &str) -> Result<(), S3Error> {
        let mut reader = Reader::root(body.as_bytes(), "R")?;
        reader.skip()?;
        reader.finish()
    }

    #[test]
    fn what_is_no_document_is_refused() {
        walk("<?xml version='1.0'?>\n<!-- c --><R xmlns='x'><a b='c'/>t</R>\n").unwrap();
        for body in [
            "",
            "text",
            "<S/>",
            "<R>",
            "<R></S>",
            "<R/><R/>",
            "<R/>x",
            "</R>",
            "<R/></R>",
            "<!DOCTYPE R [<!ENTITY e 'x'>]><R>&e;</R>",
            "<R><?php x ?></R>",
            "<R><!DOCTYPE R></R>",
            "<R",
            "<R><a></R></a>",
            "\u{feff}\u{feff}<R/>",
        ] {
            let error = walk(body).unwrap_err();
            assert_eq!(error.code(), Code::MalformedXml, "{body}");
        }
    }

    #[test]
    fn entities_resolve_only_if_they_are_xmls_own() {
        let text = |body: &str| Reader::root(body.as_bytes(), "R").and_then(|mut r| r.text());
        assert_eq!(
            text("<R>&lt;&amp;&#65;&#x42;<![CDATA[<&]]>&apos;</R>").unwrap(),
            "<&AB<&'"
        );
        for body in [
            "<R>&nbsp;</R>",
            "<R>&#xd800;</R>",
            "<R>&</R>",
            "<R>&#x110000;</R>",
        ] {
            assert!(text(body).is_err(), "{body}");
        }
        assert!(text("<R>a<b/></R>").is_err());
    }

    #[test]
    fn depth_count_and_text_are_bounded() {
        let deep = "<R>".repeat(XML_DEPTH_MAX + 1) + &"</R>".repeat(XML_DEPTH_MAX + 1);
        assert!(walk(&deep).is_err());
        let deep = "<R>".repeat(XML_DEPTH_MAX) + &"</R>".repeat(XML_DEPTH_MAX);
        walk(&deep).unwrap();
        assert!(walk(&format!("<R>{}</R>", "<a/>".repeat(XML_ELEMENTS_MAX))).is_err());
        let long = format!("<R>{}</R>", "x".repeat(XML_TEXT_BYTES_MAX + 1));
        assert!(Reader::root(long.as_bytes(), "R").unwrap().text().is_err());
        let huge = " ".repeat(XML_BYTES_MAX + 1);
        let error = Reader::root(huge.as_bytes(), "R").unwrap_err();
        assert_eq!(error.code(), Code::MaxMessageLengthExceeded);
    }
}
