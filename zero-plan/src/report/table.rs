//! Table: labelled rows of figures in columns. Knows nothing of what they mean.

use super::WIDTH;

/// Columns for labels, and for figures, at least.
const LABEL_WIDTH: usize = 25;
const FIGURE_WIDTH: usize = 12;

/// A title, headings of columns, and rows with a figure for each column.
pub struct Table {
    title: String,
    headings: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

impl Table {
    pub fn new(title: &str, headings: Vec<String>) -> Self {
        Self { title: title.to_owned(), headings, rows: Vec::new() }
    }

    pub fn row(&mut self, label: &str, figures: Vec<String>) {
        assert_eq!(figures.len(), self.headings.len(), "a figure for each column");
        self.rows.push((format!("  {label}"), figures));
    }

    /// One column where all say the same.
    pub fn merged(mut self) -> Self {
        let is_alike = |figures: &[String]| figures.windows(2).all(|pair| pair[0] == pair[1]);
        if self.headings.len() > 1 && self.rows.iter().all(|(_, figures)| is_alike(figures)) {
            self.headings = vec!["each".to_owned()];
            self.rows.iter_mut().for_each(|(_, figures)| figures.truncate(1));
        }
        self
    }

    /// The lines; where they would get too long, some columns below the others.
    pub fn lines(&self) -> Vec<String> {
        // A title without headings may go on above the figures.
        let title = (!self.headings.concat().is_empty()).then_some(&self.title);
        let labels = self.rows.iter().map(|(label, _)| label).chain(title);
        let label_width = labels.map(|label| label.len() + 1).max().unwrap_or(0).max(LABEL_WIDTH);
        let texts = self.rows.iter().flat_map(|(_, figures)| figures).chain(&self.headings);
        let width = texts.map(|text| text.len() + 2).max().unwrap_or(0).max(FIGURE_WIDTH);
        let blocks = self.headings.len().div_ceil((WIDTH - label_width) / width);
        let columns = self.headings.len().div_ceil(blocks);
        let line = |label: &str, figures: &[String]| {
            let figures: String = figures.iter().map(|figure| format!("{figure:>width$}")).collect();
            format!("{label:<label_width$}{figures}").trim_end().to_owned()
        };
        let mut lines = Vec::new();
        for first in (0..self.headings.len()).step_by(columns) {
            let shown = first..self.headings.len().min(first + columns);
            if first > 0 {
                lines.push(String::new());
            }
            lines.push(line(&self.title, &self.headings[shown.clone()]));
            lines.extend(self.rows.iter().map(|(label, figures)| line(label, &figures[shown.clone()])));
        }
        lines
    }
}
