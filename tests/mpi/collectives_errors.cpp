#include "support/catch.h"
#include "support/collective_calls.h"
using namespace test;
TEST_CASE("none"){skip("not written");}
