use std::{
    collections::HashSet,
    fs::{File, OpenOptions, create_dir_all},
    io::Write,
    path::PathBuf,
};

use anyhow::{Context, Result};
use di_client::LogLine;

/// Writes the log of each container to a file, in a directory per pod.
///
/// Only one file is open at a time: a job can have more containers than the limit of open files.
pub struct Files {
    directory: PathBuf,
    /// The files that were created.
    created: HashSet<PathBuf>,
    open: Option<(PathBuf, File)>,
}

impl Files {
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            created: HashSet::new(),
            open: None,
        }
    }

    /// Writes a line. Prints the name of each new file; replaces the files of an earlier run.
    pub fn write_line(&mut self, out: &mut impl Write, line: &LogLine) -> Result<()> {
        let directory = self.directory.join(&line.pod);
        let path = directory.join(format!("{}.log", line.container));
        let mut file = match self.open.take() {
            Some((open, file)) if open == path => file,
            _ => {
                let new = !self.created.contains(&path);
                let opened = create_dir_all(&directory).and_then(|()| {
                    let mut options = OpenOptions::new();
                    options.create(true).write(true).truncate(new).append(!new);
                    options.open(&path)
                });
                let file = opened.with_context(|| format!("cannot write {}", path.display()))?;
                if new {
                    self.created.insert(path.clone());
                    writeln!(out, "{}", path.display())?;
                    out.flush()?;
                }
                file
            }
        };
        let written = file.write_all(&line.bytes);
        written.with_context(|| format!("cannot write {}", path.display()))?;
        self.open = Some((path, file));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_files_of_an_earlier_run_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let line = |pod: &str, bytes: &[u8]| LogLine {
            pod: pod.to_owned(),
            container: "c".to_owned(),
            bytes: bytes.to_vec(),
        };
        for _ in 0..2 {
            let mut files = Files::new(directory.path().join("logs"));
            let mut out = Vec::new();
            for line in [line("a", b"1\n"), line("b", b"2"), line("a", b"3\n")] {
                files.write_line(&mut out, &line).unwrap();
            }
            let out = String::from_utf8(out).unwrap();
            let names: Vec<_> = out.lines().map(|path| &path[path.len() - 12..]).collect();
            assert_eq!(names, ["logs/a/c.log", "logs/b/c.log"]);
            let read = |name: &str| std::fs::read(directory.path().join(name)).unwrap();
            assert_eq!(read("logs/a/c.log"), b"1\n3\n");
            assert_eq!(read("logs/b/c.log"), b"2");
        }
        std::fs::write(directory.path().join("full"), "").unwrap();
        let mut files = Files::new(directory.path().join("full"));
        let error = files
            .write_line(&mut Vec::new(), &line("a", b""))
            .unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error:#}");
    }
}
