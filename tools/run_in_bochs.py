"""Runs an x86-64 Linux program on the AVX-512 CPU that Bochs emulates: python tools/run_in_bochs.py PROGRAM [FILE ...]

The program gets our standard input and the files as its arguments, its output and exit code become ours. Needs gcc and
Debian's bochs, isolinux, syslinux-common and xorriso, and a Linux kernel: $BOCHS_KERNEL or the newest /boot/vmlinuz-*.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Bochs and the kernel differ on the size of XSAVES' area, so it is hidden: else the kernel would switch AVX off.
MENU = "DEFAULT go\nLABEL go\nKERNEL /vmlinuz\nAPPEND initrd=/initrd quiet nosmp noapic nolapic clearcpuid=321,323\n"
MACHINE = """
display_library: rfb, options="timeout=0"
sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy
speaker: enabled=0
cpu: model=corei7_skylake_x, ips=50000000
megs: 1024
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path=boot.iso, status=inserted
boot: cdrom
log: log
port_e9_hack: enabled=1
"""
LOADER = ("ISOLINUX/isolinux.bin", "syslinux/modules/bios/ldlinux.c32")
ISO = "xorriso -as mkisofs -quiet -o boot.iso -b isolinux.bin -no-emul-boot -boot-load-size 4 -boot-info-table disk"


def initramfs(files: dict[str, bytes]) -> bytes:
    """The files as a cpio archive, folders before what is in them."""
    folders = sorted({str(parent)[1:] for name in files for parent in Path(name).parents} - {""})
    entries = [(name, b"", 0o040755) for name in folders] + [(name[1:], data, 0o100755) for name, data in files.items()]
    archive = b""
    for inode, (name, data, mode) in enumerate([*entries, ("TRAILER!!!", b"", 0)], 1):
        fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        archive += head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
    return archive


kernel = os.environ.get("BOCHS_KERNEL") or max(map(str, Path("/boot").glob("vmlinuz-*")), default="")
if not kernel:
    sys.exit("There is no Linux kernel in /boot; set BOCHS_KERNEL to one, as linux-image-cloud-amd64 has it.")
with tempfile.TemporaryDirectory() as folder:
    command = [str(Path(name).resolve()) for name in sys.argv[1:]]
    ldd = "".join(subprocess.run(["ldd", name], capture_output=True, text=True, check=False).stdout for name in command)
    files = {name: Path(name).read_bytes() for name in [*command, *re.findall(r"(/\S+) \(", ldd)]}
    define = "-DCOMMAND=" + ", ".join(f'"{name}"' for name in command)
    subprocess.run(
        ["gcc", "-static", str(Path(__file__).with_suffix(".c")), define, "-o", f"{folder}/init"], check=True
    )
    files |= {"/init": Path(folder, "init").read_bytes(), "/stdin": sys.stdin.buffer.read()}
    disk = {"initrd": initramfs(files), "isolinux.cfg": MENU.encode(), "vmlinuz": Path(kernel).read_bytes()}
    disk |= {Path(name).name: Path("/usr/lib", name).read_bytes() for name in LOADER}
    Path(folder, "disk").mkdir()
    for name, data in disk.items():
        Path(folder, "disk", name).write_bytes(data)
    Path(folder, "machine").write_text(MACHINE, encoding="utf-8")
    Path(folder, "commands").write_text("c\nquit\n", encoding="utf-8")  # Debian's Bochs waits in its debugger
    subprocess.run(ISO.split(), cwd=folder, check=True, stderr=subprocess.DEVNULL)
    bochs = ["bochs", "-q", "-f", "machine", "-rc", "commands"]
    said = subprocess.run(bochs, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False).stdout
output = re.search(rb"<output>(.*)<exit (\d+)>", said, re.DOTALL)
if output is None:
    sys.exit("The emulated machine stopped before the program did.")
sys.stdout.buffer.write(output[1])
sys.exit(int(output[2]))
