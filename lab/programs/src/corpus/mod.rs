//! The text that is indexed: documentation and dictionaries that Debian packages install.
//!
//! The term frequencies of real English make the times of searches differ, so no text is generated or repeated here. A
//! corpus can also be any directory of .txt files, as in the tests.

mod files;
mod split;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use files::{Fingerprint, read_text, text_files};
use split::{dictionary_entries, paragraphs};

/// Rule by which the files of a source become documents.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// A directory of text files; a document is a paragraph.
    Folder,
    /// The two files `<path>.index` and `<path>.dict.dz`; a document is an entry.
    Dictionary,
}

/// Source of text: a Debian package or a directory.
#[derive(Debug)]
struct Source {
    /// Name of the source in messages.
    name: String,
    path: PathBuf,
    form: Form,
}

/// Debian packages with text: name of the package, path of its files, form.
const PACKAGES: [(&str, &str, Form); 3] = [
    ("linux-doc-6.1", "/usr/share/doc/linux-doc-6.1/Documentation", Form::Folder),
    ("dict-gcide", "/usr/share/dictd/gcide", Form::Dictionary),
    ("dict-foldoc", "/usr/share/dictd/foldoc", Form::Dictionary),
];

/// Text sources from which one index is built.
#[derive(Debug)]
pub struct Corpus {
    sources: Vec<Source>,
}

impl Corpus {
    /// Returns the sources whose Debian packages are installed, and warns about missing packages. Fails if no package
    /// is installed.
    pub fn from_debian_packages() -> Result<Corpus> {
        let (present, missing): (Vec<Source>, Vec<Source>) =
            PACKAGES.into_iter().map(Source::from_package).partition(Source::is_installed);
        if present.is_empty() {
            bail!("no text to index: {}", missing_packages_advice(&missing));
        }
        if !missing.is_empty() {
            eprintln!("warning: indexing without some of the text: {}", missing_packages_advice(&missing));
        }
        Ok(Corpus { sources: present })
    }

    /// Returns a corpus of the .txt files in and below a directory.
    pub fn from_folder(path: &Path) -> Result<Corpus> {
        if !path.is_dir() {
            bail!("{} is not a directory; --corpus-dir wants a directory of .txt files", path.display());
        }
        let source = Source { name: path.display().to_string(), path: path.to_owned(), form: Form::Folder };
        Ok(Corpus { sources: vec![source] })
    }

    /// Returns a hash that changes if any file of the corpus changes.
    pub fn fingerprint(&self) -> Result<u64> {
        let mut print = Fingerprint::new();
        for source in &self.sources {
            for file in source.files()? {
                print.add_file(&file)?;
            }
        }
        Ok(print.value())
    }

    /// Passes every document to `sink`, always in the same order.
    pub fn for_each_document(&self, sink: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        for source in &self.sources {
            source.for_each_document(sink).with_context(|| format!("cannot index the text of {}", source.name))?;
        }
        Ok(())
    }
}

impl Source {
    fn from_package((package, path, form): (&str, &str, Form)) -> Source {
        Source { name: package.to_owned(), path: PathBuf::from(path), form }
    }

    fn is_installed(&self) -> bool {
        match self.form {
            Form::Folder => self.path.is_dir(),
            Form::Dictionary => self.dictionary_files().iter().all(|file| file.is_file()),
        }
    }

    fn dictionary_files(&self) -> [PathBuf; 2] {
        [self.path.with_extension("index"), self.path.with_extension("dict.dz")]
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        match self.form {
            Form::Folder => text_files(&self.path),
            Form::Dictionary => Ok(self.dictionary_files().into()),
        }
    }

    fn for_each_document(&self, sink: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        match self.form {
            Form::Folder => {
                for file in text_files(&self.path)? {
                    paragraphs(&read_text(&file)?).try_for_each(&mut *sink)?;
                }
                Ok(())
            }
            Form::Dictionary => {
                let [index, text] = self.dictionary_files();
                dictionary_entries(&read_text(&index)?, &files::read_bytes(&text)?)?
                    .iter()
                    .try_for_each(|entry| sink(entry))
            }
        }
    }
}

/// Returns a text that names the missing packages and the command that installs them.
fn missing_packages_advice(missing: &[Source]) -> String {
    let packages: Vec<&str> = missing.iter().map(|source| source.name.as_str()).collect();
    format!("not installed: {}; run `apt-get install {}`", packages.join(", "), packages.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_every_missing_package() {
        let missing: Vec<Source> = PACKAGES.into_iter().map(Source::from_package).collect();
        assert_eq!(
            missing_packages_advice(&missing),
            "not installed: linux-doc-6.1, dict-gcide, dict-foldoc; \
             run `apt-get install linux-doc-6.1 dict-gcide dict-foldoc`"
        );
    }

    #[test]
    fn changed_text_changes_the_folder_fingerprint() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "one").unwrap();
        let corpus = Corpus::from_folder(folder.path()).unwrap();
        let before = corpus.fingerprint().unwrap();
        assert_eq!(before, corpus.fingerprint().unwrap());
        std::fs::write(folder.path().join("b.txt"), "two").unwrap();
        assert_ne!(before, corpus.fingerprint().unwrap());
    }
}
