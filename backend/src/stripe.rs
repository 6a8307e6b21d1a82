//! Striping as arithmetic: which bytes of which object hold a range of a volume.
//!
//! The same mapping as RADOS's striper: `stripe_unit` bytes go to each of `stripe_count` objects in
//! turn; when these are full, the next set of objects follows.

/// How a volume's bytes are spread over objects.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Layout {
    stripe_unit: u32,
    stripe_count: u32,
    object_size: u32,
}

/// A contiguous part of one object.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Piece {
    pub object_number: u64,
    pub object_offset: u64,
    pub length: u64,
    /// Where these bytes lie in the range that was mapped.
    pub buffer_offset: u64,
}

/// Why three numbers make no layout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LayoutError {
    /// The object size is not between 4 KiB and 128 MiB.
    ObjectSize,
    /// The stripe count is not between 1 and 1,024.
    StripeCount,
    /// The stripe unit is 0 or does not divide the object size.
    StripeUnit,
}

impl Layout {
    /// # Errors
    /// Says which of the numbers, in bytes and objects, makes no layout.
    pub fn new(stripe_unit: u32, stripe_count: u32, object_size: u32) -> Result<Self, LayoutError> {
        if !(4_096..=128 * 1024 * 1024).contains(&object_size) {
            return Err(LayoutError::ObjectSize);
        }
        if stripe_unit == 0 || !object_size.is_multiple_of(stripe_unit) {
            return Err(LayoutError::StripeUnit);
        }
        if !(1..=1_024).contains(&stripe_count) {
            return Err(LayoutError::StripeCount);
        }
        Ok(Self {
            stripe_unit,
            stripe_count,
            object_size,
        })
    }

    #[must_use]
    pub fn stripe_unit(&self) -> u32 {
        self.stripe_unit
    }

    #[must_use]
    pub fn stripe_count(&self) -> u32 {
        self.stripe_count
    }

    #[must_use]
    pub fn object_size(&self) -> u32 {
        self.object_size
    }

    /// The pieces of `offset..offset + length` in the order of the range. Pieces that touch in one
    /// object are one.
    ///
    /// # Panics
    /// If the range ends beyond `u64::MAX`.
    pub fn map(&self, offset: u64, length: u64) -> impl Iterator<Item = Piece> + use<> {
        let end = offset
            .checked_add(length)
            .expect("a range ends within 64 bits");
        let layout = *self;
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (object_number, object_offset) = layout.locate(at);
            let room = layout.contiguous_from(at);
            let piece = Piece {
                object_number,
                object_offset,
                length: room.min(end - at),
                buffer_offset: at - offset,
            };
            at += piece.length;
            Some(piece)
        })
    }

    /// The offset in the volume of a byte of an object: the inverse of `map`.
    #[must_use]
    pub fn unmap(&self, object_number: u64, object_offset: u64) -> u64 {
        let (unit, count) = (u64::from(self.stripe_unit), u64::from(self.stripe_count));
        let stripes_per_object = u64::from(self.object_size) / unit;
        let set = object_number / count;
        let column = object_number % count;
        let row = set * stripes_per_object + object_offset / unit;
        (row * count + column) * unit + object_offset % unit
    }

    /// One more than the greatest object number that holds a byte of a volume of `size` bytes.
    #[must_use]
    pub fn object_count(&self, size: u64) -> u64 {
        let set_bytes = u64::from(self.object_size) * u64::from(self.stripe_count);
        let full_sets = size / set_bytes;
        let rest_units = (size % set_bytes).div_ceil(u64::from(self.stripe_unit));
        full_sets * u64::from(self.stripe_count) + rest_units.min(u64::from(self.stripe_count))
    }

    /// The least number of an object that may hold a byte behind `size`.
    #[must_use]
    pub fn first_touched(&self, size: u64) -> u64 {
        let count = u64::from(self.stripe_count);
        size / (u64::from(self.object_size) * count) * count
    }

    /// Bytes of an object that belong to a volume of `size` bytes. They are its first ones.
    #[must_use]
    pub fn kept_bytes(&self, object_number: u64, size: u64) -> u64 {
        let (unit, count) = (u64::from(self.stripe_unit), u64::from(self.stripe_count));
        let object_size = u64::from(self.object_size);
        let (set, column) = (object_number / count, object_number % count);
        let in_set = size.saturating_sub(set * count * object_size);
        let rows = in_set / (unit * count);
        let in_row = (in_set % (unit * count)).saturating_sub(column * unit);
        (rows * unit + in_row.min(unit)).min(object_size)
    }

    fn locate(&self, at: u64) -> (u64, u64) {
        let (unit, count) = (u64::from(self.stripe_unit), u64::from(self.stripe_count));
        let stripes_per_object = u64::from(self.object_size) / unit;
        let block = at / unit;
        let (row, column) = (block / count, block % count);
        let set = row / stripes_per_object;
        let object_offset = (row % stripes_per_object) * unit + at % unit;
        (set * count + column, object_offset)
    }

    fn contiguous_from(&self, at: u64) -> u64 {
        if self.stripe_count == 1 {
            let size = u64::from(self.object_size);
            return size - at % size;
        }
        let unit = u64::from(self.stripe_unit);
        unit - at % unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layouts with one object a set, several, and a unit as large as the object.
    fn layouts() -> Vec<Layout> {
        [
            (4_096, 1, 4_096),
            (4_096, 3, 16_384),
            (65_536, 4, 65_536),
            (512, 1, 4_096),
        ]
        .map(|(unit, count, size)| Layout::new(unit, count, size).unwrap())
        .to_vec()
    }

    #[test]
    fn pieces_partition_the_range_and_unmap_is_the_inverse() {
        for layout in layouts() {
            for (offset, length) in [(0, 1), (4_095, 2), (1, 200_000), (65_536, 65_536), (9, 0)] {
                let mut expected = offset;
                for piece in layout.map(offset, length) {
                    assert_eq!(piece.buffer_offset, expected - offset);
                    assert!(piece.length > 0);
                    assert!(piece.object_offset + piece.length <= u64::from(layout.object_size()));
                    for at in [0, piece.length - 1] {
                        let volume = layout.unmap(piece.object_number, piece.object_offset + at);
                        assert_eq!(volume, expected + at);
                    }
                    assert!(piece.object_number < layout.object_count(offset + length));
                    expected += piece.length;
                }
                assert_eq!(expected, offset + length);
            }
        }
    }

    #[test]
    fn one_column_is_plain_division() {
        let layout = Layout::new(4_194_304, 1, 4_194_304).unwrap();
        let pieces: Vec<Piece> = layout.map(4_194_303, 2).collect();
        assert_eq!(pieces.len(), 2);
        assert_eq!(
            (pieces[0].object_number, pieces[0].object_offset),
            (0, 4_194_303)
        );
        assert_eq!((pieces[1].object_number, pieces[1].object_offset), (1, 0));
    }

    #[test]
    fn numbers_that_make_no_layout_are_refused() {
        assert_eq!(Layout::new(3, 1, 4_096), Err(LayoutError::StripeUnit));
        assert_eq!(Layout::new(0, 1, 4_096), Err(LayoutError::StripeUnit));
        assert_eq!(Layout::new(4_096, 0, 4_096), Err(LayoutError::StripeCount));
        assert_eq!(Layout::new(4_096, 1, 1_024), Err(LayoutError::ObjectSize));
    }

    #[test]
    fn what_is_kept_is_what_the_layout_maps() {
        for (unit, count, object_size) in [(4_096, 1, 4_096), (4_096, 3, 16_384), (8_192, 2, 8_192)]
        {
            let layout = Layout::new(unit, count, object_size).unwrap();
            for size in [0, 1, 4_096, 4_097, 12_288, 40_000, 49_152, 49_153, 100_000] {
                for number in 0..12 {
                    let mapped: u64 = layout
                        .map(0, size)
                        .filter(|piece| piece.object_number == number)
                        .map(|piece| piece.length)
                        .sum();
                    assert_eq!(
                        layout.kept_bytes(number, size),
                        mapped,
                        "{number} at {size}"
                    );
                }
            }
        }
    }
}
