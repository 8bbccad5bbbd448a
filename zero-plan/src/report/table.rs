//! Table: labelled rows of figures in columns. Does not know what they mean.

use super::WIDTH;

/// The least widths of the column of labels, and of a column of figures.
const LABEL_WIDTH: usize = 25;
const FIGURE_WIDTH: usize = 12;

/// A title, headings of columns, and rows with a figure for each column.
pub struct Table {
    title: String,
    headings: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
    /// Whether each column is only as wide as its own figures; otherwise all are as wide as the widest.
    is_fitted: bool,
}

impl Table {
    /// A table without rows.
    pub fn new(title: &str, headings: Vec<String>) -> Self {
        Self { title: title.to_owned(), headings, rows: Vec::new(), is_fitted: false }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it does not have a figure for each column.
    pub fn row(&mut self, label: &str, figures: Vec<String>) {
        assert_eq!(figures.len(), self.headings.len(), "a figure for each column");
        self.rows.push((format!("  {label}"), figures));
    }

    /// Merges all columns into one, if all have the same figures.
    pub fn merged(mut self) -> Self {
        let is_alike = |figures: &[String]| figures.windows(2).all(|pair| pair[0] == pair[1]);
        if self.headings.len() > 1 && self.rows.iter().all(|(_, figures)| is_alike(figures)) {
            self.headings = vec!["each".to_owned()];
            self.rows.iter_mut().for_each(|(_, figures)| figures.truncate(1));
        }
        self
    }

    /// Makes each column as wide as its own figures, and leaves out those without any.
    pub fn fitted(mut self) -> Self {
        for column in (0..self.headings.len()).rev() {
            if !self.rows.is_empty() && self.rows.iter().all(|(_, figures)| figures[column].is_empty()) {
                self.headings.remove(column);
                self.rows.iter_mut().for_each(|(_, figures)| drop(figures.remove(column)));
            }
        }
        self.is_fitted = true;
        self
    }

    fn widths(&self) -> Vec<usize> {
        let own = |column: usize| {
            let texts = self.rows.iter().map(|(_, figures)| &figures[column]);
            texts.chain([&self.headings[column]]).map(|text| text.len() + 2).max().unwrap_or(0)
        };
        let own: Vec<usize> = (0..self.headings.len()).map(own).collect();
        let widest = own.iter().fold(FIGURE_WIDTH, |widest, &width| widest.max(width));
        if self.is_fitted { own } else { vec![widest; own.len()] }
    }

    /// The lines. If they would get too long, some columns are put below the others.
    pub fn lines(&self) -> Vec<String> {
        // Without headings beside it, the title may be longer than the column of labels.
        let title = (!self.headings.concat().is_empty()).then_some(&self.title);
        let labels = self.rows.iter().map(|(label, _)| label).chain(title);
        let label_width = labels.map(|label| label.len() + 1).max().unwrap_or(0).max(LABEL_WIDTH);
        let widths = self.widths();
        let widest = widths.iter().max().map_or(FIGURE_WIDTH, |&widest| widest);
        let blocks = if self.is_fitted { 1 } else { widths.len().div_ceil((WIDTH - label_width) / widest) };
        let columns = widths.len().div_ceil(blocks);
        let line = |label: &str, figures: &[String], widths: &[usize]| {
            let figures: String =
                figures.iter().zip(widths).map(|(figure, width)| format!("{figure:>width$}")).collect();
            format!("{label:<label_width$}{figures}").trim_end().to_owned()
        };
        let mut lines = Vec::new();
        for first in (0..self.headings.len()).step_by(columns) {
            let shown = first..self.headings.len().min(first + columns);
            if first > 0 {
                lines.push(String::new());
            }
            let widths = &widths[shown.clone()];
            lines.push(line(&self.title, &self.headings[shown.clone()], widths));
            lines.extend(self.rows.iter().map(|(label, figures)| line(label, &figures[shown.clone()], widths)));
        }
        lines
    }
}
