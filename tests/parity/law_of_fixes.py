import asyncio, sys, time, logging
import structlog
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
from tests.parity.explained import apply_fixes
from tests.parity.suite import scenarios
from tests.parity.recordings import RECORDED
all_=[s for s in scenarios() if not s.feature_gates]
lo,hi=int(sys.argv[1]),int(sys.argv[2])
want=sys.argv[3] if len(sys.argv)>3 else ""
some=[s for s in all_ if want in s.key][lo:hi]
b=time.time()
out=asyncio.run(apply_fixes(some, "1.37"))
print(len(all_), "scenarios", len(some), "explained", out.explained, "works", len(out.works), "fails", len(out.fails), "without", len(out.without_fix), round(time.time()-b,1),"s")
for x in out.fails[:25]: print("FAIL", x[:300])
for x in out.without_fix[:25]: print("NONE", x[:260])
