// The end of what macros.h defines: a file of kernels includes this last.
#undef ORTISAN_BOTH
#undef ORTISAN_HIDDEN
#undef ORTISAN_INLINE
#undef ORTISAN_PRAGMA
#undef ORTISAN_UNROLL
#undef ORTISAN_INDEPENDENT
