//! Runs: the elements of a published tensor that make up a stretch of the model's own. Never moves an element.

use core::ops::Range;

/// Elements that lie one after another in a published tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedRun {
    /// The first, in the published tensor.
    pub published: usize,
    /// Number of elements.
    pub len: usize,
    /// Where the first lies in the stretch.
    pub own: usize,
    /// The distance to the next in the stretch.
    pub step: usize,
}

/// The runs of elements `stretch` of the model's own tensor. A transposed matrix of (rows, columns) is published as
/// (columns, rows), so that each of its columns makes a run of the rows that the stretch has. `shape` is the model's
/// own.
pub fn runs(stretch: Range<usize>, shape: &[usize], transposed: bool) -> impl Iterator<Item = PublishedRun> {
    let (rows, columns) = match *shape {
        [rows, columns] if transposed => (rows, columns),
        // One run, as of a matrix with a single column.
        _ => (stretch.end, 1),
    };
    let Range { start, end } = stretch;
    let (first, last) = ((start / columns, start % columns), (end / columns, end % columns));
    (0..columns).filter_map(move |column| {
        let from = first.0 + usize::from(column < first.1);
        let to = last.0 + usize::from(column < last.1);
        let own = (from * columns + column).wrapping_sub(start);
        (from < to).then(|| PublishedRun { published: column * rows + from, len: to - from, own, step: columns })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_every_stretch_is_found_where_it_is_published() {
        for shape in [&[3, 4][..], &[1, 5], &[5, 1], &[7]] {
            for transposed in [false, true] {
                let len: usize = shape.iter().product();
                for start in 0..=len {
                    for end in start..=len {
                        let mut found = vec![usize::MAX; end - start];
                        for run in runs(start..end, shape, transposed) {
                            for i in 0..run.len {
                                let place = &mut found[run.own + i * run.step];
                                assert_eq!(*place, usize::MAX, "twice");
                                *place = run.published + i;
                            }
                        }
                        let published = |own: usize| match *shape {
                            [rows, columns] if transposed => own % columns * rows + own / columns,
                            _ => own,
                        };
                        let expected: Vec<usize> = (start..end).map(published).collect();
                        assert_eq!(found, expected, "{shape:?} {transposed} {start}..{end}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_transposed_is_one_run() {
        let all: Vec<PublishedRun> = runs(5..9, &[4, 4], false).collect();
        assert_eq!(all, [PublishedRun { published: 5, len: 4, own: 0, step: 1 }]);
    }
}
