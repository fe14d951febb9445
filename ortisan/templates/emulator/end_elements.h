// The end of what elements.h defines: a file of handlers includes this last.
#undef UNARY
#undef BINARY
#undef TERNARY
#undef BITS
#undef SIGNED
#undef INTEGERS
#undef SHORT
#undef LONG
#undef MIXED
