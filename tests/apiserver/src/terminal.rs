use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use crate::eventually;

/// A real terminal in tmux that runs a program.
pub struct Terminal {
    socket: PathBuf,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

impl Terminal {
    /// Runs a command in a terminal of this size; `dir` also holds the terminal's socket. At its
    /// end the terminal shows the exit code and the terminal settings.
    pub fn open(dir: &Path, width: u16, height: u16, command: &str) -> Self {
        // Each terminal has its own tmux server: the next test might find one that is stopping.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let terminal = Self {
            socket: dir.join(format!("tmux-{number}")),
        };
        let dir = dir.display();
        // Ctrl-C must reach the command only.
        let script = format!(
            "trap : INT; cd {dir}; {command}; echo ended with $?; stty -a | grep -woE -e '-?(isig|icanon|echo)' | xargs echo settings; exec cat"
        );
        let (width, height) = (width.to_string(), height.to_string());
        let size = ["-x", width.as_str(), "-y", height.as_str()];
        let session = [
            &["new-session", "-d"],
            size.as_slice(),
            &["sh", "-c", &script],
        ]
        .concat();
        let options = ["set", "-g", "status", "off", ";"];
        terminal.tmux(&[options.as_slice(), &session].concat());
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(&self.socket)
            .args(args)
            .output()
            .expect("tmux: apt-get install tmux");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Presses keys, by their tmux names.
    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Resizes the terminal, and waits until tmux has reported the new size.
    pub async fn resize(&self, width: u16, height: u16) {
        let size = format!("{height} {width}\n");
        let (width, height) = (width.to_string(), height.to_string());
        self.tmux(&["resize-window", "-x", &width, "-y", &height]);
        let tty = self.tmux(&["display", "-p", "#{pane_tty}"]);
        eventually("the terminal's size", async || {
            let reported = Command::new("stty")
                .args(["-F", tty.trim(), "size"])
                .output();
            let reported = reported.unwrap().stdout;
            let is_resized = reported == size.as_bytes();
            is_resized
                .then_some(())
                .ok_or_else(|| String::from_utf8_lossy(&reported).into_owned())
        })
        .await;
    }

    /// The text on the screen.
    pub fn screen(&self) -> String {
        let text = self.tmux(&["capture-pane", "-p"]);
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// The text on the screen with color sequences.
    pub fn colours(&self) -> String {
        self.tmux(&["capture-pane", "-e", "-p"])
    }

    /// Waits until the screen satisfies `done`, and returns its text.
    pub async fn until(&self, description: &str, done: impl Fn(&str) -> bool) -> String {
        eventually(description, async || {
            let screen = self.screen();
            if done(&screen) {
                Ok(screen)
            } else {
                Err(screen)
            }
        })
        .await
    }

    /// Waits until the command has exited with this code and restored the terminal.
    pub async fn until_ended(&self, code: u8) {
        let ended = format!("ended with {code}\n");
        let screen = self
            .until(&ended, |screen| screen.contains("\nsettings"))
            .await;
        assert!(screen.contains(&ended), "{screen}");
        assert!(screen.contains("settings isig icanon echo"), "{screen}");
        assert_eq!(self.tmux(&["display", "-p", "#{alternate_on}"]).trim(), "0");
        assert_eq!(self.tmux(&["display", "-p", "#{cursor_flag}"]).trim(), "1");
    }

    /// Sends a signal to the command.
    pub fn signal(&self, signal: &str) {
        let shell = self.tmux(&["display", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        let child = children.unwrap();
        let killed = Command::new("kill")
            .args(["-s", signal, child.trim()])
            .status();
        assert!(killed.unwrap().success());
    }
}
