"""Timestamps and durations. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3."""

import pytest

from tests.unit.cel.libraries.asking import answer


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(
            {
                'string(timestamp("2009-02-13T23:31:30+05:00"))': '"2009-02-13T23:31:30+05:00" for 0',
                'string(timestamp("2009-02-13T23:31:30.100+05:00") + duration("1s"))': '"2009-02-13T23:31:31.1+05:00" for 2',
            },
            id="a timestamp is written in the zone it was read in",
        ),
        pytest.param(
            {
                'timestamp(dyn("2009-02-13 23:31:30Z"))': "error: type conversion error from 'string' to 'google.protobuf.Timestamp'",
                'timestamp(dyn("2009-02-13T23:31:60Z"))': "error: type conversion error from 'string' to 'google.protobuf.Timestamp'",
                'string(timestamp(dyn("2009-02-13T3:31:30Z")))': '"2009-02-13T03:31:30Z" for 0',
                'string(timestamp(dyn("2009-02-13T24:31:30Z")))': "error: type conversion error from 'string' to 'google.protobuf.Timestamp'",
                'string(timestamp(dyn("2009-02-13T23:31:30,5Z")))': '"2009-02-13T23:31:30.5Z" for 0',
                'string(timestamp(dyn("2009-02-13T23:31:30.1234567899Z")))': '"2009-02-13T23:31:30.123456789Z" for 0',
                'string(timestamp(dyn("2009-02-29T23:31:30Z")))': "error: type conversion error from 'string' to 'google.protobuf.Timestamp'",
                'string(timestamp(dyn("2009-02-13T23:31:30+23:60")))': '"2009-02-13T23:31:30+24:00" for 0',
                'string(timestamp(dyn("2009-02-13T23:31:30-08:30")))': '"2009-02-13T23:31:30-08:30" for 0',
            },
            id="RFC 3339 is read as Go does: a short hour and a comma are fine, impossible dates are not",
        ),
        pytest.param(
            {
                'string(timestamp(dyn("0000-02-13T23:31:30Z")))': "error: timestamp overflow",
                'string(timestamp(dyn("9999-12-31T23:59:59.999999999Z")) + duration("1ns"))': "error: timestamp overflow",
            },
            id="years end with 9999 and begin with 1",
        ),
        pytest.param(
            {
                'timestamp("2009-02-13T23:31:30Z").getHours("Asia/Tokyo")': "8 for 1",
                'timestamp("2009-02-13T23:31:30Z").getHours("asia/tokyo")': "error: unknown time zone asia/tokyo",
                'timestamp("2009-02-13T23:31:30Z").getHours("this.that")': "error: unknown time zone this.that",
                'timestamp("2009-02-13T23:31:30Z").getHours("")': "23 for 1",
                'timestamp("2009-02-13T23:31:30Z").getHours("../x")': "error: time: invalid location name",
                'timestamp("2009-02-13T23:31:30Z").getHours("+05:30")': "5 for 1",
                'timestamp("2009-02-13T23:31:30Z").getHours("-05:30")': "18 for 1",
                'timestamp("2009-02-13T23:31:30Z").getHours("05:3x")': 'error: strconv.Atoi: parsing "3x": invalid syntax',
                'timestamp("2009-02-13T23:31:30Z").getHours(":30")': 'error: strconv.Atoi: parsing "": invalid syntax',
                'timestamp("2009-02-13T23:31:30Z").getHours("99:30")': "3 for 1",
                'timestamp("2009-02-13T23:31:30Z").getHours("1:-30")': "0 for 1",
                'timestamp("2009-02-13T23:31:30Z").getHours("99999999999999999999:30")': 'error: strconv.Atoi: parsing "99999999999999999999": value out of range',
            },
            id="zones are names of the database or offsets",
        ),
        pytest.param(
            {
                'timestamp("9999-12-31T23:59:59Z").getHours("America/New_York")': "18 for 1",
                'timestamp("9999-07-30T23:59:59Z").getHours("America/New_York")': "19 for 1",
                'timestamp("9999-12-31T23:59:59Z").getMinutes("Australia/Lord_Howe")': "59 for 1",
                'timestamp("0001-01-01T00:00:00Z").getMinutes("America/New_York")': "3 for 1",
            },
            id="the last years have summers and winters, too",
        ),
        pytest.param(
            {
                '[timestamp("2009-02-13T23:31:30.789Z")].map(t, [t.getFullYear(), t.getMonth(), t.getDate(), t.getDayOfMonth(), t.getDayOfWeek(), t.getDayOfYear(), t.getHours(), t.getMinutes(), t.getSeconds(), t.getMilliseconds()])': "[[2009, 1, 13, 12, 5, 43, 23, 31, 30, 789]] for 43",
                '[timestamp("0001-01-01T00:00:00Z")].map(t, [t.getFullYear("-01:00"), t.getMonth("-01:00"), t.getDayOfYear("-01:00"), t.getDayOfWeek("-01:00")])': "[[0, 11, 365, 0]] for 31",
                'timestamp("2009-02-13T23:31:30Z").getSeconds("America/New_York")': "30 for 1",
                'timestamp("2024-12-31T23:31:30Z").getDayOfYear()': "365 for 1",
            },
            id="parts of a timestamp, also before the first year",
        ),
        pytest.param(
            {
                'duration("1.5h").getMinutes()': "90 for 1",
                'string(duration("-1.5ms"))': '"-0.0015s" for 0',
                'string(duration("100000h0.1s"))': '"360000000.1s" for 0',
                'duration(dyn("1d"))': "error: type conversion error from 'string' to 'google.protobuf.Duration'",
                'duration(dyn("1"))': "error: type conversion error from 'string' to 'google.protobuf.Duration'",
                'string(duration("+.5s"))': '"0.5s" for 0',
                'duration(dyn("9223372036854775807ns")).getHours()': "2562047 for 1",
                'duration(dyn("9223372036854775808ns"))': "error: type conversion error from 'string' to 'google.protobuf.Duration'",
                'int(duration("-9223372036854775808ns"))': "-9223372036854775808 for 0",
                'string(duration("1h1m1.0000000001s"))': '"3661s" for 0',
                "duration(dyn(3))": "error: type conversion error from 'int' to 'google.protobuf.Duration'",
            },
            id="durations are read and written as Go does",
        ),
        pytest.param(
            {
                'duration("-3723.456s").getSeconds()': "-3723 for 1",
                'duration("-3723.456s").getMilliseconds()': "-3723456 for 1",
            },
            id="parts of a duration are rounded towards zero",
        ),
        pytest.param(
            {
                'duration("1h") - duration("90m")': "dur-1800000000000 for 1",
                'timestamp("2009-02-13T23:31:30Z") - timestamp("2008-02-13T23:31:30Z")': "dur31622400000000000 for 1",
                'timestamp("9999-12-31T23:59:59Z") - timestamp("0001-01-01T00:00:00Z")': "error: integer overflow",
                "timestamp(dyn(253402300800))": "error: timestamp overflow",
                "timestamp(0)": "ts1970-01-01T00:00:00Z for 0",
                'int(timestamp("1969-12-31T23:59:59.5Z"))': "-1 for 0",
                'timestamp("2009-02-13T23:31:30Z") < timestamp("2009-02-13T23:31:31Z")': "true for 1",
                'timestamp("2009-02-13T23:31:30+01:00") == timestamp("2009-02-13T22:31:30Z")': "true for 1",
                'duration("1s") >= duration("1000ms")': "true for 1",
            },
            id="time is added and compared within 64 bits of nanoseconds",
        ),
    ],
)
def test_times(answers):
    """Calendar, clock and lengths of time, as cel-go computes them."""
    assert answers == {each: answer(each) for each in answers}
