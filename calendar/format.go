package calendar

// Times are formatted by hand: time.Format reads its layout anew each time, and a mark formats several
// hundred thousand of them.

// appendDate appends yyyyMMdd of a wall time.
func appendDate(b []byte, wall int64) []byte {
	year, month, day := civil(wall).Date()
	b = appendPadded(b, year, 4)
	b = appendPadded(b, int(month), 2)
	return appendPadded(b, day, 2)
}

// appendPadded appends n with zeros in front.
func appendPadded(b []byte, n, width int) []byte {
	if width == 4 {
		b = append(b, byte('0'+n/1000%10), byte('0'+n/100%10))
	}
	return append(b, byte('0'+n/10%10), byte('0'+n%10))
}

// appendOffset appends +hhmm, and seconds where there are any (before 1972 some zones had them).
func appendOffset(b []byte, offset int64) []byte {
	sign := byte('+')
	if offset < 0 {
		sign, offset = '-', -offset
	}
	b = append(b, sign)
	b = appendPadded(b, int(offset/hourSeconds), 2)
	b = appendPadded(b, int(offset/60%60), 2)
	if s := int(offset % 60); s != 0 {
		b = appendPadded(b, s, 2)
	}
	return b
}
