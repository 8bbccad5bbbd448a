//! Lines: code as rustfmt would format it by its default style, for the few forms that an expansion consists of. Never knows
//! what they mean.

/// Columns of a line.
const WIDTH: usize = 100;
/// Columns of the arguments of a call on one line.
const ARGUMENTS_WIDTH: usize = 60;

/// Code, a line at a time.
#[derive(Default)]
pub(super) struct Lines {
    text: String,
    indent: usize,
}

impl Lines {
    /// A line, indented.
    pub(super) fn line(&mut self, text: &str) {
        if !text.is_empty() {
            self.text.extend(std::iter::repeat_n(' ', self.indent));
            self.text.push_str(text);
        }
        self.text.push('\n');
    }

    /// `head` with a block in braces after it.
    pub(super) fn block(&mut self, head: &str, body: impl FnOnce(&mut Self)) {
        self.line(&format!("{head} {{"));
        self.indent += 4;
        body(self);
        self.indent -= 4;
        self.line("}");
    }

    /// A constant whose value is a block, which ends in `;`.
    pub(super) fn constant(&mut self, head: &str, body: impl FnOnce(&mut Self)) {
        self.block(head, body);
        self.text.pop();
        self.text.push_str(";\n");
    }

    /// `before`, a call with arguments, and `;`: the arguments on one line, or each on its own.
    pub(super) fn call(&mut self, before: &str, function: &str, arguments: &[String]) {
        let joined = arguments.join(", ");
        let whole = format!("{before}{function}({joined});");
        let fits = joined.chars().count() <= ARGUMENTS_WIDTH;
        if fits && self.indent + whole.chars().count() <= WIDTH {
            return self.line(&whole);
        }
        if fits && before.ends_with(' ') && self.indent + 4 + function.len() + joined.chars().count() + 3 <= WIDTH {
            self.line(before.trim_end());
            return self.line(&format!("    {function}({joined});"));
        }
        self.line(&format!("{before}{function}("));
        arguments.iter().for_each(|argument| self.line(&format!("    {argument},")));
        self.line(");");
    }

    /// The text.
    pub(super) fn finish(self) -> String {
        self.text
    }
}
